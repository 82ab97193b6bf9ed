"""Format jsonl: one JSON object for each record, in their order."""

import base64
import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import OutputRow
from workers.trainers.inference.writers.writer import part_name


class JsonLines:
    """Rows without an answer have nulls in the task's ``columns``, and an ``error``."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def write(self, directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
        name = part_name(shard, "jsonl")
        with (directory / name).open("wb") as file:
            for row in rows:
                file.write(encoded(self._object(row)))
        return (name,)

    def join(self, directory: Path, shards: Sequence[Shard]) -> None:
        """The parts stay as they are."""

    def _object(self, row: OutputRow) -> dict[str, Any]:
        found: dict[str, Any] = {"index": row.index, **row.kept}
        answer = row.answer
        if answer is None:
            found |= dict.fromkeys(self._columns)
        else:
            found |= answer.values
            found |= {} if answer.vector is None else {"embedding": answer.vector.tolist()}
        found |= {"prompt_tokens": answer.prompt_tokens if answer else 0}
        found |= {"completion_tokens": answer.completion_tokens if answer else 0}
        return found if row.error is None else found | {"error": row.error.to_json()}


def encoded(value: dict[str, Any]) -> bytes:
    """A line; a lone surrogate, which UTF-8 lacks, becomes JSON's own escape of it."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(", ", ": "), default=str)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def plain(value: object) -> object:
    """Values of typed columns as JSON has them: times in ISO 8601, bytes in base64; NaN and infinities are null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value
