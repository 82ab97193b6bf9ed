"""A sample of a benchmark: one record's completion and scores, as a line of the file `samples-NAME.jsonl`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

# A number, or counts of which the metric is a function once they are added.
Score = float | tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """``index`` is the number of the record in its dataset, from 0.

    ``doc_hash``, ``prompt_hash`` and ``target_hash`` are digests of the record, of what the model read, and of the
    right answer: two evaluations can be compared where they are equal. ``more`` holds figures of single benchmarks.
    """

    index: int
    document: Mapping[str, Any] = field(default_factory=dict)
    doc_hash: str = ""
    prompt_hash: str = ""
    target_hash: str = ""
    answer: Any = None
    scores: Mapping[str, Score] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        """Parse a line. Raises ValueError when it is no sample."""
        values = json.loads(line)
        if not isinstance(values, dict) or not isinstance(values.get("scores"), dict) or "index" not in values:
            raise ValueError("no sample of an evaluation: a line must be an object with index and scores")
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        scores = {
            name: tuple(score) if isinstance(score, list) else float(score) for name, score in values["scores"].items()
        }
        return cls(**{**known, "scores": scores})

    def to_line(self) -> str:
        """One line of JSON with sorted keys, without its end."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)


def digest(value: object) -> str:
    """A digest of a JSON value, of which the order of keys is no part."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
