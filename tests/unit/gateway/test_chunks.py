"""Bodies in chunks are taken apart however they arrive, and nothing else is taken for one."""

import pytest

from app.gateway.chunks import BadChunk, Chunks

BODY = b"5\r\nhello\r\na\r\n0123456789\r\n000C\r\n\r\n5\r\nhello\r\n\r\n0\r\n\r\n"
CONTENT = b"hello0123456789\r\n5\r\nhello\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_content_is_the_same_however_the_chunks_arrive(size: int) -> None:
    chunks = Chunks()

    found = b"".join(chunks.feed(BODY[at : at + size]) for at in range(0, len(BODY), size))

    assert found == CONTENT
    assert chunks.is_complete


def test_a_body_is_complete_at_the_end_of_its_last_chunk_alone() -> None:
    assert [end for end in range(len(BODY)) if _fed(BODY[:end]).is_complete] == []


@pytest.mark.parametrize(
    "body",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"5;name=value\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"1" * 16 + b"\r\n",
        b"1" * 64,
        b"2\r\nhello\r\n",
        b"5\r\nhello5\r\nhello\r\n",
        b"0\r\nName: trailer\r\n\r\n",
        BODY + b"0\r\n\r\n",
        BODY + b"x",
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_no_body_in_chunks_is_refused(body: bytes, size: int) -> None:
    with pytest.raises(BadChunk):
        _fed(body, size)


def test_what_came_before_an_error_is_kept() -> None:
    with pytest.raises(BadChunk) as refused:
        Chunks().feed(b"5\r\nhello\r\n3\r\nabc\r\nx\r\n")

    assert refused.value.content == b"helloabc"


def _fed(body: bytes, size: int = 1000) -> Chunks:
    chunks = Chunks()
    for at in range(0, len(body), size):
        chunks.feed(body[at : at + size])
    return chunks
