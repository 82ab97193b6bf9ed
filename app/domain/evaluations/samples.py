"""A sample of a benchmark: one record's completion and scores, as a line of the file `samples-NAME.jsonl`."""

import contextlib
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from app.domain.text_metrics.bleu import SIZE

# A number; (negative log-likelihood, tokens); or the counts of BLEU. Of the latter two the metric is a function once
# they are added.
Score = float | tuple[float, ...]
_RATIO = 2
_MOST = 2**53  # whole numbers up to here are exact as floats
_LONGEST_HASH = 64
_HASHES = ("doc_hash", "prompt_hash", "target_hash")


@dataclass(frozen=True, kw_only=True, slots=True)
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
        """Parse a line, which a rank may have written. Raises ValueError when it is no sample."""
        try:
            values = json.loads(line)
        except RecursionError:
            raise ValueError("no sample of an evaluation: the line is nested too deeply") from None
        if (problem := _problem(values)) is not None:
            raise ValueError(f"no sample of an evaluation: {problem}")
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        known["index"] = int(values["index"])
        scores = {name: _score(score) for name, score in values["scores"].items()}
        return cls(**{**known, "scores": scores})

    def scored(self, names: Collection[str]) -> Self:
        """What comparisons by these metrics need of it."""
        scores = {name: score for name, score in self.scores.items() if name in names}
        return replace(self, scores=scores, document={}, answer=None, more={})

    def to_line(self) -> str:
        """One line of JSON with sorted keys, without its end."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)


def _problem(values: object) -> str | None:
    """Why these are not the fields of a sample, apart from its scores."""
    if not isinstance(values, dict) or not isinstance(values.get("scores"), dict):
        return "a line must be an object with index and scores"
    if not _is_count(values.get("index")):
        return "index must be a whole number from 0"
    for name in _HASHES:
        if not isinstance(text := values.get(name, ""), str) or len(text) > _LONGEST_HASH:
            return f"{name} must be a text of at most {_LONGEST_HASH} characters"
    return None


def _score(found: object) -> Score:
    if isinstance(found, list) and len(found) == _RATIO and _is_count(found[1]):
        return _number(found[0]), float(found[1])
    if isinstance(found, list) and len(found) == SIZE and all(map(_is_count, found)):
        return tuple(map(float, found))
    return _number(found)


def _number(found: object) -> float:
    if isinstance(found, int | float) and not isinstance(found, bool):
        with contextlib.suppress(OverflowError):
            return float(found)
    raise ValueError("no sample of an evaluation: a score must be a number, or a list of counts")


def _is_count(found: object) -> bool:
    if not isinstance(found, int | float) or isinstance(found, bool):
        return False
    return 0 <= found <= _MOST and found == int(found)


def digest(value: object) -> str:
    """A digest of a JSON value, of which the order of keys is no part."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
