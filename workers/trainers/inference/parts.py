"""Parts of the output: the files of a shard with a small file of their counts, and what is known of finished ones."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard.protocol.checkpoint_manifest import CorruptCheckpoint
from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import OutputRow
from workers.trainers.inference.writers.writer import PartWriter, part_name

ERRORS_SHOWN = 10


@dataclass(frozen=True)
class Counts:
    """Of a shard, or of several; ``prompt_tokens`` counts a prompt once, however many answers it gets."""

    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.failed + other.failed,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True)
class OutputPart:
    """A finished shard: its counts, its first errors as JSON, and the names of its files."""

    shard: Shard
    counts: Counts
    errors: tuple[dict[str, Any], ...] = ()
    files: tuple[str, ...] = ()
    dimension: int | None = None  # of its vectors, if it has any

    def position(self) -> dict[str, Any]:
        """What the manifest of the checkpoint says of it, for the supervisor."""
        return {
            "shard": self.shard.number,
            "first_record": self.shard.first_record,
            "records": self.shard.records,
            "counts": asdict(self.counts),
        }


def part_of(shard: Shard, rows: Sequence[OutputRow]) -> OutputPart:
    """The part before its files are written."""
    answers = [row.answer for row in rows if row.answer is not None]
    errors = [{"index": row.index, **row.error.to_json()} for row in rows if row.error is not None]
    counts = Counts(
        failed=len(errors),
        prompt_tokens=sum(each.prompt_tokens for each in answers),
        completion_tokens=sum(each.completion_tokens for each in answers),
    )
    dimensions = (each.vector.shape[-1] for each in answers if each.vector is not None)
    return OutputPart(shard, counts, tuple(errors[:ERRORS_SHOWN]), dimension=next(dimensions, None))


def write_part(directory: Path, writer: PartWriter, part: OutputPart, rows: Sequence[OutputRow]) -> None:
    """Fill a new ``directory`` with the files of the part."""
    directory.mkdir(parents=True)
    files = writer.write(directory, part.shard, rows)
    document = {**part.position(), "errors": part.errors, "files": files, "dimension": part.dimension}
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    (directory / counts_file(part.shard)).write_text(text, encoding="utf-8")


def read_part(directory: Path, shard: Shard) -> OutputPart:
    """A part whose files lie in ``directory``, perhaps among others. Raises CorruptCheckpoint."""
    name = counts_file(shard)
    try:
        document = json.loads((directory / name).read_text(encoding="utf-8"))
        found = Shard(document["shard"], document["first_record"], document["records"])
        errors, files = tuple(document["errors"]), tuple(document["files"])
        part = OutputPart(found, Counts(**document["counts"]), errors, files, document["dimension"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint(name, f"the counts of a finished shard can't be read ({error})") from error
    if found != shard:
        raise CorruptCheckpoint(name, f"it describes {found}, but the records are cut into {shard}: the data changed")
    return part


def copy_part(source: Path, output: Path) -> None:
    """Put the files of a part among the others."""
    for path in sorted(source.iterdir()):
        shutil.copyfile(path, output / path.name)


def counts_file(shard: Shard) -> str:
    """Left in the output only until the last part is finished."""
    return part_name(shard, "json", "counts")
