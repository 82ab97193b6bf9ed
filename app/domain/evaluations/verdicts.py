"""Verdicts of a judge: the form that it is asked for, and the number that its text means."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.domain.evaluations.judging import (
    CONSISTENCY,
    FIRST_SHARE,
    PASSED,
    SCORE,
    TIES,
    UNJUDGED,
    WIN_RATE,
    folded,
    is_pairwise,
)

_LABEL, _WINNER, _REASON = "label", "winner", "reason"
_SIDES = {"A": 1.0, "B": 0.0, "tie": 0.5}
_CUT = "cut off at max_tokens"
_ALSO_TIE = "c"  # as judges of MT-bench write it
_MOST_WHOLE = 100  # whole scores that are listed in a schema
_ROOM_FOR_VERDICT = 64  # characters
_LONGEST_READ = 1 << 13  # characters from the end of a text, in which any brace may begin an object
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
Search = Callable[[str], str | None]


@dataclass(frozen=True, kw_only=True)
class JudgeVerdict:
    """``value`` is the number that the judge's text means; None where it can't be read, with the reason.

    ``fingerprint`` identifies the weights of the model that has judged, as its answer does.
    """

    text: str = ""
    value: float | None = None
    problem: str = ""
    fingerprint: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without what is empty."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}


@dataclass(frozen=True, kw_only=True)
class VerdictForm:
    """What a verdict is: a number from ``lowest`` to ``highest``, or else one of ``choices`` with their numbers."""

    key: str
    lowest: float = 0.0
    highest: float = 1.0
    choices: Mapping[str, float] = field(default_factory=dict)

    def value(self, said: object) -> float | None:
        """The number that this means; None for what is no verdict."""
        if self.choices:
            meant = {folded(name): number for name, number in self.choices.items()}
            if self.key == _WINNER:
                meant[_ALSO_TIE] = _SIDES["tie"]
            return meant.get(folded(said)) if isinstance(said, str) else None
        if isinstance(said, bool) or not isinstance(said, str | int | float):
            return None
        if isinstance(said, str) and not _NUMBER.fullmatch(said.strip()):  # float() reads 1_0, too
            return None
        try:
            number = float(said)
        except (ValueError, OverflowError):
            return None
        return number if self.lowest <= number <= self.highest else None

    @property
    def expected(self) -> str:
        """What a verdict has to be, in words."""
        if self.choices:
            return f"one of {', '.join(json.dumps(each, ensure_ascii=False) for each in self.choices)}"
        noun = "a whole number" if self._wholes else "a number"
        return f"{noun} from {self.lowest:g} (worst) to {self.highest:g} (best)"

    def request(self, *, reasons: bool) -> str:
        """What follows a template whose verdict is JSON."""
        meaning = " for the better answer" if self.key == _WINNER else ""
        reason = f'"{_REASON}", your reason in one to three sentences, then ' if reasons else ""
        return f'Reply with a JSON object alone: {reason}"{self.key}", {self.expected}{meaning}.'

    def response_format(self, *, reasons: bool, max_tokens: int) -> dict[str, Any]:
        """As requests have it. The reason stands first, so that the verdict follows from it."""
        properties: dict[str, Any] = {self.key: self._schema()}
        if reasons:
            # The verdict follows in time even where each token of the reason is a single character.
            room = max_tokens - _ROOM_FOR_VERDICT - max(map(len, self.choices), default=0)
            properties = {_REASON: {"type": "string", "maxLength": max(1, room)}, **properties}
        closed = {"type": "object", "additionalProperties": False}
        schema = {**closed, "properties": properties, "required": list(properties)}
        return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}

    def _schema(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        if self._wholes:
            return {"type": "integer", "enum": list(self._wholes)}
        return {"type": "number", "minimum": self.lowest, "maximum": self.highest}

    @property
    def _wholes(self) -> Sequence[int]:
        """All scores of a scale between whole numbers, which judges use more evenly than fractions."""
        is_whole = self.lowest.is_integer() and self.highest.is_integer()
        if not is_whole or self.highest - self.lowest > _MOST_WHOLE or self.highest - self.lowest < 2:
            return ()
        return range(int(self.lowest), int(self.highest) + 1)


def form_of(values: Mapping[str, Any]) -> VerdictForm:
    """The form that a benchmark's parameters ask for."""
    if is_pairwise(values):
        return VerdictForm(key=_WINNER, choices=_SIDES)
    if values["labels"]:
        passing = {folded(each) for each in values["passing"]}
        return VerdictForm(key=_LABEL, choices={each: float(folded(each) in passing) for each in values["labels"]})
    return VerdictForm(key=SCORE, lowest=float(values["min_score"]), highest=float(values["max_score"]))


def read(text: str, form: VerdictForm, search: Search | None, *, is_cut: bool = False) -> JudgeVerdict:
    """The verdict of a text. ``search`` finds it where it is no JSON; ``is_cut``: the judge was cut off."""
    if search is not None and is_cut:  # what is found stands in its reasoning
        return JudgeVerdict(text=text, problem=_CUT)
    said = search(text) if search is not None else _of_json(text, form.key)
    value = form.value(said) if said is not None else None
    if value is not None:
        return JudgeVerdict(text=text, value=value)
    missing = "no match of pattern" if search is not None else f"no JSON object with {form.key}"
    problem = missing if said is None else f"{form.key} {str(said)[:64]!r} is not {form.expected}"
    return JudgeVerdict(text=text, problem=f"{problem}, {_CUT}" if is_cut else problem)


def scores(form: VerdictForm, verdicts: Sequence[JudgeVerdict]) -> dict[str, float]:
    """The scores of a sample by its verdict, or by those of both orders: first with the answer as A, then as B."""
    values = [each.value for each in verdicts if each.value is not None]
    if len(values) < len(verdicts):
        return {UNJUDGED: 1.0}
    if form.key != _WINNER:
        return {PASSED if form.choices else SCORE: values[0], UNJUDGED: 0.0}
    as_a, as_b = values[0], 1.0 - values[1]
    rate = (as_a + as_b) / 2
    return {
        WIN_RATE: rate,
        TIES: float(rate == _SIDES["tie"]),
        CONSISTENCY: float(as_a == as_b),
        FIRST_SHARE: (values[0] + values[1]) / 2,
        UNJUDGED: 0.0,
    }


def _of_json(text: str, key: str) -> object:
    """The key's value in the last object of the text that has it; None without one."""
    found = [each[key] for each in _objects(text) if key in each]
    return found[-1] if found else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The first one, however long, and those at the end."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except RecursionError:  # each brace within it would take as long
            return
        except ValueError:
            end = at + 1
        else:
            yield found
        text = text[max(end, len(text) - _LONGEST_READ) :]  # an error takes as long as the text is
        at = text.find("{")
