"""Reads rows of Parquet and Arrow files in small batches."""

from collections.abc import Collection, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from workers.trainers.data.opening import damaged, seekable
from workers.trainers.data.sources import DataFile
from workers.trainers.failures import DataInvalid

# Small, because a whole batch is converted to Python objects.
_BATCH_ROWS = 256


def parquet_rows(file: DataFile, only: Collection[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with the columns in `only`; with all columns if it is empty, or names a missing one."""
    with seekable(file) as stream:
        parquet = _parquet(file, stream)
        columns = _chosen(parquet.schema_arrow.names, only)
        yield from _numbered(file, parquet.iter_batches(_BATCH_ROWS, columns=columns))


def parquet_count(file: DataFile) -> int:
    """The number of rows in the file's footer."""
    with seekable(file) as stream:
        count: int = _parquet(file, stream).metadata.num_rows
        return count


def arrow_rows(file: DataFile, only: Collection[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of an Arrow file or stream, likewise."""
    with seekable(file) as stream:
        yield from _numbered(file, _arrow_batches(file, stream, only))


def _parquet(file: DataFile, stream: IO[bytes]) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise damaged(file, error, ", or no Parquet file") from error


def _arrow_batches(file: DataFile, stream: IO[bytes], only: Collection[str]) -> Iterator[pa.RecordBatch]:
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    try:
        reader = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
    except (pa.ArrowException, OSError) as error:
        raise damaged(file, error, ", or no Arrow file") from error
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
    for batch in batches:
        columns = _chosen(batch.schema.names, only)
        selected = batch.select(columns) if columns else batch
        for start in range(0, selected.num_rows, _BATCH_ROWS):
            yield selected.slice(start, _BATCH_ROWS)


def _chosen(names: list[str], only: Collection[str]) -> list[str] | None:
    return [name for name in names if name in only] if only and set(only) <= set(names) else None


def _numbered(file: DataFile, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise damaged(file, error, f" after record {number}") from error
        if batch is None:
            return
        for values in _python(file, number, batch):
            number += 1
            yield number, values


def _python(file: DataFile, before: int, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        values: list[dict[str, Any]] = batch.to_pylist()
    except (UnicodeDecodeError, pa.ArrowException) as error:
        bad = next((i for i in range(batch.num_rows) if not _is_readable(batch.slice(i, 1))), 0)
        raise DataInvalid(f"{file.name} record {before + bad + 1} can't be read: {error}") from error
    return values


def _is_readable(batch: pa.RecordBatch) -> bool:
    try:
        batch.to_pylist()
    except (UnicodeDecodeError, pa.ArrowException):
        return False
    return True
