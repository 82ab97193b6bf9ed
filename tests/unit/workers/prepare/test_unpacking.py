"""Uploaded content is unpacked by what it is, as far as a file may go."""

import gzip
import tomllib
from pathlib import Path

import pytest
import zstandard

from app.domain.files.inspection import BadContent
from workers.prepare.files.unpacking import LEAST_JUDGED_BYTES, unpacked

TEXT = b'{"text": "a"}\n' * 1000
PACKED = {"gzip": gzip.compress(TEXT), "zstd": zstandard.compress(TEXT)}


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"", b""),
        (TEXT[:20], TEXT[:20]),
        (PACKED["gzip"], TEXT),
        (PACKED["gzip"] * 2, TEXT * 2),
        (PACKED["gzip"] + bytes(512), TEXT),
        (PACKED["zstd"], TEXT),
        (PACKED["zstd"] * 2, TEXT * 2),
    ],
    ids=["empty", "plain", "gzip", "two-gzip", "padded-gzip", "zstd", "two-zstd"],
)
def test_content_is_unpacked_by_its_first_bytes(data: bytes, content: bytes, size: int) -> None:
    assert b"".join(unpacked(pieces(data, size), len(content))) == content


@pytest.mark.parametrize("method", PACKED)
def test_damaged_and_cut_off_content_is_refused(method: str) -> None:
    packed = PACKED[method]

    with pytest.raises(BadContent, match=f"the file is {method} that was cut off"):
        list(unpacked([packed[:-1]], len(TEXT)))
    with pytest.raises(BadContent, match=f"the file is damaged {method}"):
        list(unpacked([packed[:12] + bytes(20) + packed[20:]], len(TEXT)))


@pytest.mark.parametrize("method", PACKED)
def test_no_more_is_unpacked_than_a_file_may_have(method: str) -> None:
    with pytest.raises(BadContent, match="unpacks to more than 13,999 bytes, the most that a file may have"):
        list(unpacked([PACKED[method]], len(TEXT) - 1))


@pytest.mark.parametrize("pack", [lambda data: gzip.compress(data, 1), zstandard.compress], ids=["gzip", "zstd"])
def test_what_unpacks_to_hundreds_of_times_its_size_is_refused(pack) -> None:
    bomb = pack(bytes(LEAST_JUDGED_BYTES + (1 << 20)))

    with pytest.raises(BadContent, match="unpacks to more than 200 times its size"):
        max(map(len, unpacked([bomb], 1 << 40)))


def test_every_coordinator_can_unpack_what_may_be_uploaded() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]

    assert any(each.startswith("zstandard") for each in project["dependencies"])
