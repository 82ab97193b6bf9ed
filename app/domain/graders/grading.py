"""What a grader gives for one completion; models and Python are asked by callbacks."""

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn

from app.domain.graders import templates
from app.domain.graders.document import (
    FUNCTION,
    FUZZY_MATCH,
    Grader,
    LabelModel,
    Multi,
    Python,
    ScoreModel,
    Single,
    StringCheck,
)
from app.domain.graders.formula import FormulaFailed
from app.domain.graders.similarity import similarity

# GradeError.kind, as OpenAI names them.
INVALID_VARIABLE = "invalid_variable_error"  # the record lacks what a template names
SAMPLE_PARSE = "sample_parse_error"  # the completion lacks it, such as one that is no JSON
FORMULA = "formula_parse_error"
PYTHON_RUNTIME = "python_grader_runtime_error"  # the source raised, took too long, or returned no number
MODEL_SERVER = "model_grader_server_error"  # the model did not answer
MODEL_REFUSAL = "model_grader_refusal_error"
MODEL_PARSE = "model_grader_parse_error"  # the model answered something else
OTHER = "other_error"
KINDS = (INVALID_VARIABLE, SAMPLE_PARSE, FORMULA, PYTHON_RUNTIME, MODEL_SERVER, MODEL_REFUSAL, MODEL_PARSE, OTHER)

_MOST_TOKENS = 64  # of a number with what is around it, unless sampling_params says something else
_LONGEST_SHOWN = 200
_DEEPEST = 100  # lists and objects of output_json within each other; a few more end programs that read it
_SEEDS = 1 << 53  # as many as requests may name

# A chat completion of the model of that name. Raises NoGrade.
Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
# Source, sample and item → the number that `grade(sample, item)` of the source returns. Raises NoGrade.
RunPython = Callable[[str, Mapping[str, Any], Mapping[str, Any]], float]
FuzzyMatch = Callable[[str, str], float]  # `app.patterns.fuzzy_match`


class NoGrade(Exception):
    """A grader gave no number; ``kind`` is one of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class GradeError(NamedTuple):
    """``grader`` is the name within a multi grader, else the grader's own."""

    grader: str
    kind: str
    message: str


@dataclass
class TokenUsage:
    """Tokens of one model."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Graded:
    """``reward`` is 0 where ``errors`` has any that it depends on.

    ``sub_rewards`` are those of a multi grader, by name; None for one that gave none.
    """

    reward: float
    sub_rewards: Mapping[str, float | None] = field(default_factory=dict)
    errors: tuple[GradeError, ...] = ()
    usage: Mapping[str, TokenUsage] = field(default_factory=dict)


def sample_of(text: str, tools: list[Any] | None = None) -> dict[str, Any]:
    """The ``sample`` of templates and of python graders, of one completion.

    ``output_json`` is there where the text is JSON, nested up to ``_DEEPEST`` deep.
    """
    message = {"role": "assistant", "content": text, **({"tool_calls": tools} if tools else {})}
    sample: dict[str, Any] = {"output_text": text, "output_tools": tools or [], "choices": [{"message": message}]}
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text, parse_constant=_refuse_constant)
        if not _is_deep(found):
            sample["output_json"] = found
    return sample


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for each in level if isinstance(each, dict | list) for inner in _within(each)]
        if not level:
            return False
    return True


def _within(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def grade(
    grader: Grader,
    *,
    item: Mapping[str, Any],
    sample: Mapping[str, Any],
    ask: Ask,
    run_python: RunPython,
    fuzzy_match: FuzzyMatch,
) -> Graded:
    """The reward of one completion: never raises for what a completion, a record or a verdict is like.

    ``item`` is the record, ``sample`` the completion (`sample_of`). A completion of another form than one reads of the
    graders that a formula names is worth 0: a formula such as 1 - a would reward it.
    """
    grading = _Grading(item, sample, ask, run_python, fuzzy_match)
    if not isinstance(grader, Multi):
        reward = grading.reward(grader, grader.name)
        return Graded(reward or 0.0, {}, tuple(grading.errors), grading.usage)
    rewards = {name: grading.reward(each, name) for name, each in grader.graders.items()}
    unread = {error.grader for error in grading.errors if error.kind == SAMPLE_PARSE}
    known = {name: reward for name, reward in rewards.items() if reward is not None and name not in unread}
    total = 0.0
    if grader.formula.names <= known.keys():
        try:
            total = grader.formula.value(known)
        except FormulaFailed as error:
            grading.errors.append(GradeError(grader.name, FORMULA, str(error)))
    return Graded(total, rewards, tuple(grading.errors), grading.usage)


class _Grading:
    """One completion's grading: collects errors and the use of models."""

    def __init__(
        self,
        item: Mapping[str, Any],
        sample: Mapping[str, Any],
        ask: Ask,
        run_python: RunPython,
        fuzzy_match: FuzzyMatch,
    ) -> None:
        self.errors: list[GradeError] = []
        self.usage: dict[str, TokenUsage] = {}
        self._item = item
        self._sample = sample
        self._ask = ask
        self._run_python = run_python
        self._fuzzy_match = fuzzy_match

    def reward(self, grader: Single, name: str) -> float | None:
        """None: it gave none, as an error says. A completion that is not of the form it reads is worth 0."""
        try:
            found = self._reward(grader)
        except templates.MissingVariable as error:
            kind = SAMPLE_PARSE if error.namespace == templates.SAMPLE else INVALID_VARIABLE
            self.errors.append(GradeError(name, kind, str(error)))
            return 0.0 if kind == SAMPLE_PARSE else None
        except NoGrade as error:
            self.errors.append(GradeError(name, error.kind, error.message))
        else:
            return found
        return None

    def _reward(self, grader: Single) -> float:
        if isinstance(grader, Python):
            return self._python(grader)
        if isinstance(grader, ScoreModel):
            return self._score(grader)
        if isinstance(grader, LabelModel):
            return self._label(grader)
        text, reference = self._render(grader.input), self._render(grader.reference)
        if isinstance(grader, StringCheck):
            return float(_OPERATIONS[grader.operation](text, reference))
        if grader.metric == FUZZY_MATCH:
            return self._fuzzy_match(text, reference)
        return similarity(grader.metric, text, reference)

    def _render(self, template: str) -> str:
        try:
            return templates.render(template, self._item, self._sample)
        except templates.TooLong as error:
            raise NoGrade(OTHER, str(error)) from error

    def _python(self, grader: Python) -> float:
        found = self._run_python(grader.source, self._sample, self._item)
        if not math.isfinite(found):
            raise NoGrade(PYTHON_RUNTIME, f"{FUNCTION} returned {found}, which is no finite number")
        return found

    def _score(self, grader: ScoreModel) -> float:
        number = {"type": "number", "minimum": grader.low, "maximum": grader.high}
        found = self._verdict(grader, number)
        if isinstance(found, bool) or not isinstance(found, int | float) or not grader.low <= found <= grader.high:
            raise NoGrade(MODEL_PARSE, f"result {found!r:.100} is no number from {grader.low:g} to {grader.high:g}")
        return float(found)

    def _label(self, grader: LabelModel) -> float:
        found = self._verdict(grader, {"type": "string", "enum": list(grader.labels)})
        if found not in grader.labels:
            raise NoGrade(MODEL_PARSE, f"result {found!r:.100} is none of the labels {', '.join(grader.labels)}")
        return float(found in grader.passing)

    def _verdict(self, grader: ScoreModel | LabelModel, schema: Mapping[str, Any]) -> object:
        """``result`` of the model's answer, which is JSON of this schema."""
        messages = [{"role": each.role, "content": self._render(each.content)} for each in grader.messages]
        answer = self._ask(grader.model, request_of(grader, messages, schema))
        self._count(grader.model, answer)
        return _result(answer)

    def _count(self, model: str, answer: Mapping[str, Any]) -> None:
        used = answer.get("usage")
        total = self.usage.setdefault(model, TokenUsage())
        if isinstance(used, Mapping):
            total.prompt_tokens += int(used.get("prompt_tokens") or 0)
            total.completion_tokens += int(used.get("completion_tokens") or 0)


def request_of(
    grader: ScoreModel | LabelModel, messages: list[dict[str, str]], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """A chat completion that answers {"result": …} of this schema; the same question gets the same answer."""
    verdict = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "grade", "strict": True, "schema": verdict}}
    return {
        "model": grader.model,
        "messages": messages,
        "temperature": 0,
        "seed": _seed_of(messages),
        "max_completion_tokens": _MOST_TOKENS + _longest_label(grader),
        **grader.sampling,
        "response_format": form,
    }


def _seed_of(messages: list[dict[str, str]]) -> int:
    return int.from_bytes(sha256(json.dumps(messages).encode()).digest()[:8]) % _SEEDS


def _longest_label(grader: ScoreModel | LabelModel) -> int:
    """Bytes, of which a token has at least one."""
    return max((len(label.encode()) for label in grader.labels), default=0) if isinstance(grader, LabelModel) else 0


def _result(answer: Mapping[str, Any]) -> object:
    try:
        message = answer["choices"][0]["message"]
        refusal, content = message.get("refusal"), message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise NoGrade(MODEL_PARSE, "the model's answer is no chat completion") from None
    if refusal:
        raise NoGrade(MODEL_REFUSAL, str(refusal)[:_LONGEST_SHOWN])
    try:
        return json.loads(content)["result"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NoGrade(
            MODEL_PARSE, f'the model answered {str(content)[:_LONGEST_SHOWN]!r}, which is no {{"result": …}}'
        ) from None


_OPERATIONS: Mapping[str, Callable[[str, str], bool]] = {
    "eq": lambda text, reference: text == reference,
    "ne": lambda text, reference: text != reference,
    "like": lambda text, reference: reference in text,
    "ilike": lambda text, reference: reference.casefold() in text.casefold(),
}
