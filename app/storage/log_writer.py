"""Writes an attempt's blocks of log lines: append-only chunks per rank, named by the number of their first line."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.storage.log_blocks import LogBlock, encoded
from app.storage.object_keys import logs_key
from app.storage.storage import Storage

# A chunk of this size takes no further batch. An object store is sent the whole chunk for each batch.
CHUNK_BYTES = 256 * 1024


@dataclass
class _Chunk:
    key: str
    written: bytes = b""


class LogWriter:
    """The only writer of an attempt's log lines on a node, in its supervisor; not thread-safe."""

    def __init__(self, storage: Storage, job_id: str, attempt: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._storage = storage
        self._folder = logs_key(job_id, attempt)
        self._chunk_bytes = chunk_bytes
        self._chunks: dict[int, _Chunk] = {}
        self._newest: dict[int, int] = {}  # rank → number of its newest written line
        self._batch_end = 0

    def append(self, blocks: Sequence[LogBlock]) -> None:
        """Store blocks in order of their numbers. On TransientStorageError, call again with the same blocks.

        A skipped number is a lost line; the next block records the loss, so that readers do not wait for it.
        """
        fresh: dict[int, list[tuple[LogBlock, int]]] = {}
        before = self._batch_end
        for block in blocks:
            lost, before = max(0, block.first - before - 1), block.last
            if block.last > self._newest.get(block.rank, 0):
                fresh.setdefault(block.rank, []).append((block, lost))
        for rank, of_rank in fresh.items():
            self._grow(rank, of_rank)
        self._batch_end = max(before, self._batch_end)

    def _grow(self, rank: int, blocks: list[tuple[LogBlock, int]]) -> None:
        chunk = self._chunks.get(rank)
        if chunk is None or len(chunk.written) >= self._chunk_bytes:
            chunk = _Chunk(f"{self._folder}/rank-{rank}-{blocks[0][0].first:06d}.log")
        tail = b"".join(encoded(block, lost) for block, lost in blocks)
        whole = chunk.written + tail
        self._storage.grow(chunk.key, offset=len(chunk.written), tail=tail, whole=whole)
        chunk.written = whole
        self._chunks[rank] = chunk
        self._newest[rank] = blocks[-1][0].last
