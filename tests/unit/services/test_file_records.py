"""Records of a file are counted while it arrives, however its pieces are cut."""

import gzip

import pytest

from app.services.files.records import RecordCounter

TEXTS = [
    (b"", 0),
    (b"\n\n \t\r\n", 0),
    (b"a", 1),
    (b"a\n", 1),
    (b'{"a": 1}\n\n  \n{"b": 2}', 2),
    (b"a\r\nb\r\n\r\nc", 3),
    (b"  a  \n b\n", 2),
    (gzip.compress(b"a\nb\n", mtime=0), None),
    (b"\x28\xb5\x2f\xfd\na\nb\n", None),
]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("text", "records"), TEXTS)
def test_lines_that_are_not_empty_are_counted(text: bytes, records: int | None, size: int) -> None:
    counter = RecordCounter()

    for start in range(0, len(text), size):
        counter.add(text[start : start + size])

    assert counter.count() == records
