"""Unpacks the content of an uploaded file as it arrives: gzip and zstd by their first bytes, all other as it is.

Never more than a few MiB at once, and no more in total than a file may have.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator

import zstandard

from app.domain.files.content import GZIP, ZSTD
from app.domain.files.inspection import BadContent

# Text of JSON Lines packs to a fifth or a twentieth; what packs to less than this was made to fill a machine.
MOST_RATIO = 200
LEAST_JUDGED_BYTES = 64 << 20  # small files may repeat themselves
_PIECE_BYTES = 1 << 20
_GZIP_INPUT_BYTES = 16 << 10  # what follows a member is copied, and a file can have many
# A block of zstd has 128 KiB at most and can take 4 bytes: so many bytes become 32 MiB at most.
_ZSTD_INPUT_BYTES = 1 << 10
_ZSTD_WINDOW_BYTES = 128 << 20  # what its command line takes without being asked, and all levels below --ultra use


def unpacked(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """The content. Raises BadContent for what is damaged, cut off, or unpacks to too much."""
    arriving = iter(chunks)
    head = b""
    while len(head) < len(ZSTD) and (chunk := next(arriving, b"")):
        head += chunk
    method = next((each for each in _METHODS if head.startswith(each)), None)
    whole = _joined(head, arriving)
    return whole if method is None else _limited(whole, _METHODS[method], most_bytes)


def _joined(head: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _limited(
    packed: Iterator[bytes], method: Callable[[Iterator[bytes]], Iterator[bytes]], most_bytes: int
) -> Iterator[bytes]:
    taken = given = 0

    def counted() -> Iterator[bytes]:
        nonlocal taken
        for chunk in packed:
            taken += len(chunk)
            yield chunk

    for chunk in method(counted()):
        given += len(chunk)
        if given > most_bytes:
            raise BadContent(f"the file unpacks to more than {most_bytes:,} bytes, the most that a file may have")
        if given > max(LEAST_JUDGED_BYTES, MOST_RATIO * taken):
            raise BadContent(f"the file unpacks to more than {MOST_RATIO} times its size; upload it unpacked")
        yield chunk


def _gunzipped(packed: Iterator[bytes]) -> Iterator[bytes]:
    stream = None  # of the current member; a file can have several
    for piece in _cut(packed, _GZIP_INPUT_BYTES):
        data = piece
        while data := data if stream is not None else data.lstrip(b"\0"):  # members may be padded
            stream = stream or zlib.decompressobj(wbits=31)
            try:
                content = stream.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise BadContent(f"the file is damaged gzip: {error}") from error
            if content:
                yield content
            data = stream.unused_data if stream.eof else stream.unconsumed_tail
            if stream.eof:
                stream = None
    if stream is not None:
        raise BadContent("the file is gzip that was cut off: its end is missing")


def _unzstd(packed: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    stream = None  # of the current frame; a file can have several
    for piece in _cut(packed, _ZSTD_INPUT_BYTES):
        data = piece
        while data:
            stream = stream or unpacker.decompressobj()
            try:
                content = stream.decompress(data)
            except zstandard.ZstdError as error:
                raise BadContent(f"the file is damaged zstd: {error}") from error
            if content:
                yield content
            data = stream.unused_data if stream.eof else b""
            if stream.eof:
                stream = None
    if stream is not None:
        raise BadContent("the file is zstd that was cut off: its end is missing")


def _cut(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


_METHODS = {GZIP: _gunzipped, ZSTD: _unzstd}
