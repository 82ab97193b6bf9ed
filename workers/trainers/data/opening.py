"""Opens data files as byte streams: plain, gzip or zstd, detected by content; reports damaged files."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from app.domain.files.content import GZIP, ZSTD
from workers.trainers.data.sources import DataFile
from workers.trainers.failures import DataInvalid, DataNotFound

_COMPRESSIONS = {GZIP: "gzip", ZSTD: "zstd"}
_BUFFER_BYTES = 1 << 18
# Unsupported formats that users often submit, and how to fix each.
_FOREIGN = {
    b"PAR1": "a Parquet file; use format parquet",
    b"ARROW1": "an Arrow file; use format arrow",
    b"\xff\xff\xff\xff": "an Arrow stream; use format arrow",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"BZh": "a bzip2 file; unpack it, or use gzip or zstd",
    b"\xfd7zXZ": "an xz file; unpack it, or use gzip or zstd",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}


@contextmanager
def opened(file: DataFile) -> Iterator["io.BufferedReader[Any]"]:
    """The decompressed bytes. Raises DataNotFound and DataInvalid; reading may raise OSError without an errno."""
    with _raw(file) as raw:
        compression = _compression(raw.peek(4)[:4])
        if compression is None:
            yield raw
            return
        # pyarrow detects truncated compressed data, which zstandard's own reader does not.
        import pyarrow as pa  # noqa: PLC0415  (loaded only where it is needed: it takes a tenth of a second)

        with pa.CompressedInputStream(raw, compression) as stream:
            yield io.BufferedReader(stream, _BUFFER_BYTES)


@contextmanager
def opened_text(file: DataFile, format_: str) -> Iterator["io.BufferedReader[Any]"]:
    """As `opened`, for text formats: rejects binary files at once."""
    with opened(file) as stream:
        head = _head(stream, file)
        for magic, meaning in _FOREIGN.items():
            if head.startswith(magic):
                raise DataInvalid(f"{file.name} can't be read as {format_}: it is {meaning}")
        if b"\0" in head:
            raise DataInvalid(f"{file.name} can't be read as {format_}: it is binary, not text")
        yield stream


@contextmanager
def seekable(file: DataFile) -> Iterator[IO[bytes]]:
    """As `opened`, for formats that are read from their end; compressed files are unpacked to disk first."""
    with _raw(file) as raw:
        if _compression(raw.peek(4)[:4]) is None:
            yield raw
            return
    with tempfile.TemporaryFile() as unpacked, opened(file) as stream:
        try:
            while block := stream.read(_BUFFER_BYTES):
                unpacked.write(block)
        except OSError as error:
            raise damaged(file, error, "") from error
        unpacked.seek(0)
        yield unpacked


def damaged(file: DataFile, error: Exception, after: str) -> Exception:
    """The exception for a failed read: DataInvalid for damaged content, the error itself for a failing disk."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DataInvalid(f"{file.name} is damaged or cut off{after}: {reason}")


@contextmanager
def _raw(file: DataFile) -> Iterator["io.BufferedReader[Any]"]:
    try:
        # Opening a pipe would block.
        if file.path.exists() and not file.path.is_file():
            raise DataInvalid(f"{file.name} is not a regular file")
        raw = io.BufferedReader(io.FileIO(file.path), _BUFFER_BYTES)
    except FileNotFoundError as error:
        raise DataNotFound(f"{file.name} does not exist ({file.path})") from error
    except PermissionError as error:
        raise DataNotFound(f"{file.name} can't be read: permission denied ({file.path})") from error
    with raw:
        if not raw.peek(1):
            raise DataInvalid(f"{file.name} is empty")
        yield raw


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)


def _head(stream: "io.BufferedReader[Any]", file: DataFile) -> bytes:
    try:
        return stream.peek(4096)[:4096]
    except OSError as error:
        raise damaged(file, error, "") from error
