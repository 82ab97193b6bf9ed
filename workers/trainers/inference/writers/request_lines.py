"""Answers to requests: one JSON object for each, which names its line in the data."""

from collections.abc import Sequence
from pathlib import Path

from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import OutputRow
from workers.trainers.inference.writers.json_lines import encoded
from workers.trainers.inference.writers.writer import part_name


class RequestLines:
    """A refused request has a response, too; ``error`` is of a record that is no request."""

    def write(self, directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
        name = part_name(shard, "jsonl")
        with (directory / name).open("wb") as file:
            for row in rows:
                answer = row.answer
                values = answer.values if answer is not None else {"response": None}
                error = row.error.to_json() if answer is None and row.error is not None else None
                file.write(encoded({"index": row.index, "line": row.line, **row.kept, **values, "error": error}))
        return (name,)

    def join(self, directory: Path, shards: Sequence[Shard]) -> None:
        """The parts stay as they are."""
