"""Gathers the files that all ranks write into one directory on the first rank's disk, across nodes."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True)
class _RankFiles:
    """What a rank has written: sizes in bytes by relative path; or why it failed."""

    is_elsewhere: bool
    sizes: dict[str, int]
    problem: Exception | None


def gather_files(directory: Path, own: Iterable[Path], problem: Exception | None, group: dist.ProcessGroup) -> None:
    """Bring the files that each rank lists as its `own` into `directory` on the first rank's node.

    Collective, on any thread; `problem` is this rank's write error, if any. `group` must not run other collectives
    meanwhile. Ranks of other nodes delete their files after sending. Raises one rank's problem on every rank, and
    OSError on the first rank when it cannot write what it receives.
    """
    paths = {str(path.relative_to(directory)): path for path in own} if problem is None else {}
    part = _RankFiles(_is_elsewhere(), {name: path.stat().st_size for name, path in paths.items()}, problem)
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, part, group=group)
    for each in parts:
        if each.problem is not None:
            raise each.problem
    if dist.get_rank() == 0:
        _receive(directory, parts, group)
    elif part.is_elsewhere:
        for path in paths.values():
            _send(path, group)
            path.unlink()


def _is_elsewhere() -> bool:
    """Whether this rank is not on the first node, whose ranks have the lowest numbers."""
    return os.environ.get("RANK", "0") != os.environ.get("LOCAL_RANK", "0")


def _send(path: Path, group: dist.ProcessGroup) -> None:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            dist.send(torch.frombuffer(bytearray(chunk), dtype=torch.uint8), 0, group=group)


def _receive(directory: Path, parts: list[_RankFiles], group: dist.ProcessGroup) -> None:
    problem: OSError | None = None
    for rank, part in enumerate(parts):
        for name, size in part.sizes.items() if part.is_elsewhere else ():
            problem = _receive_file(directory / name, _chunks(rank, size, group)) or problem
    if problem is not None:
        raise problem


def _receive_file(path: Path, chunks: Iterator[memoryview]) -> OSError | None:
    """Receives the whole file even after an error, because the sender blocks until then."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
    except OSError as error:
        for _ in chunks:
            pass
        return error
    return None


def _chunks(rank: int, size: int, group: dist.ProcessGroup) -> Iterator[memoryview]:
    """The chunks of a file in the order in which `_send` sends them."""
    for start in range(0, size, _CHUNK_BYTES):
        chunk = torch.empty(min(_CHUNK_BYTES, size - start), dtype=torch.uint8)
        dist.recv(chunk, rank, group=group)
        yield chunk.numpy().data
