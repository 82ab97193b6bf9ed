"""The interface of a format of the output."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import OutputRow


@dataclass(frozen=True)
class VectorForm:
    """``each_token``: a record has a vector for each of its tokens. ``dimension`` is that of the model, where a part
    has no vector that shows it.
    """

    dtype: str
    dimension: int
    each_token: bool = False


class PartWriter(Protocol):
    """Writes the files of one part into a directory; their names contain the number of the shard."""

    def write(self, directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
        """Returns the names of the files."""

    def join(self, directory: Path, shards: Sequence[Shard]) -> None:
        """Put together what the format keeps in one file for all shards; most keep the parts as they are."""


def part_name(shard: Shard, suffix: str, stem: str = "part") -> str:
    return f"{stem}-{shard.number:05d}.{suffix}"


def dimension_of(rows: Sequence[OutputRow], form: VectorForm) -> int:
    vectors = (row.answer.vector for row in rows if row.answer is not None)
    return next((vector.shape[-1] for vector in vectors if vector is not None), form.dimension)
