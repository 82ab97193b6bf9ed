"""The requests of a batch as they stand in its file, line by line."""

import gzip
from collections.abc import Generator, Iterator
from typing import BinaryIO, cast

from app.domain.errors import NotFound
from app.domain.files.content import GZIP, ZSTD
from app.domain.files.lines import Line, lines
from app.models import Batch
from app.services.requests.control_plane import ControlPlane
from app.storage.object_keys import user_file_key

_PIECE_BYTES = 1 << 20


class ContentMissing(NotFound):
    """The storage does not have the file with the requests."""


class StepInterrupted(Exception):
    """This process stops, or leads no more; the next step of the batch begins again what it was at."""


def lines_of(plane: ControlPlane, batch: Batch) -> Generator[Line]:
    """The lines that are not empty, of a file that has passed its inspection. Raises ContentMissing.

    The batch keeps the content in the storage even after the file has expired.
    """
    try:
        stream = plane.storage.open(user_file_key(batch.project, batch.input_file_id))
    except NotFound as error:
        raise ContentMissing(f"the storage does not have the content of {batch.input_file_id}") from error
    with stream as stored:
        yield from lines(_pieces(_unpacked(stored)), plane.files.line_max_bytes)


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(_PIECE_BYTES):
        yield piece


def _unpacked(stored: BinaryIO) -> BinaryIO:
    """The inspection has unpacked the same content before, within limits."""
    head = stored.read(len(ZSTD))
    stored.seek(0)
    if head.startswith(GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=stored))
    if head.startswith(ZSTD):
        import zstandard  # noqa: PLC0415 – few files need it

        return cast("BinaryIO", zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True))
    return stored
