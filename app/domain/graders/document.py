"""The grader objects of OpenAI's API, parsed and checked: every error names its field."""

import ast
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.graders import templates
from app.domain.graders.formula import Formula, InvalidFormula, is_name

STRING_CHECK, TEXT_SIMILARITY, SCORE_MODEL = "string_check", "text_similarity", "score_model"
LABEL_MODEL, PYTHON, MULTI = "label_model", "python", "multi"
TYPES = (STRING_CHECK, TEXT_SIMILARITY, SCORE_MODEL, LABEL_MODEL, PYTHON, MULTI)
OPERATIONS = ("eq", "ne", "like", "ilike")
FUZZY_MATCH = "fuzzy_match"
METRICS = (FUZZY_MATCH, "bleu", "gleu", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l")
ROLES = ("system", "developer", "user", "assistant")
FUNCTION = "grade"  # in the source of a python grader

MOST_GRADERS = 16  # of a multi grader
LONGEST_SOURCE = 256 * 1024  # bytes, of a python grader
LONGEST_TEXT = 64 * 1024  # characters of a template
_LONGEST_NAME = 256
_MOST_MESSAGES = 64
_MOST_LABELS = 100
_MOST_TOKENS = 32 * 1024
_FIELD = "training_config.grader"

_NOT_HERE = {
    "cosine": "it needs a model of embeddings, which a grader does not name",
    "meteor": "it needs the synonyms of WordNet, which are not installed",
}
_TEXT_PARTS = ("input_text", "output_text")
_OTHER_PARTS = ("input_image", "input_audio")
_parsing = threading.Lock()


@dataclass(frozen=True)
class StringCheck:
    """1 where ``operation`` holds between two texts, else 0."""

    name: str
    input: str
    reference: str
    operation: str


@dataclass(frozen=True)
class TextSimilarity:
    """How alike two texts are, from 0 to 1."""

    name: str
    input: str
    reference: str
    metric: str


@dataclass(frozen=True)
class ChatMessage:
    role: str
    content: str


@dataclass(frozen=True)
class ScoreModel:
    """A number from ``low`` to ``high`` that a model gives."""

    name: str
    model: str
    messages: tuple[ChatMessage, ...]
    low: float = 0.0
    high: float = 1.0
    sampling: Mapping[str, Any] = field(default_factory=dict)  # in the names of chat completions


@dataclass(frozen=True)
class LabelModel:
    """1 where the label that a model gives is one of ``passing``, else 0."""

    name: str
    model: str
    messages: tuple[ChatMessage, ...]
    labels: tuple[str, ...]
    passing: frozenset[str]
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Python:
    """What the function ``grade(sample, item)`` of the source returns."""

    name: str
    source: str = field(repr=False)


Single = StringCheck | TextSimilarity | ScoreModel | LabelModel | Python


@dataclass(frozen=True)
class Multi:
    """A formula over the rewards of other graders, by their names."""

    name: str
    graders: Mapping[str, Single]
    formula: Formula


Grader = Single | Multi


def parse(value: object, field: str = _FIELD) -> Grader:
    """Raises BadSpec and NotSupportedYet; ``field`` is the path of the grader in the request."""
    values, kind = _object(value, field, TYPES)
    return _multi(values, field) if kind == MULTI else _single(values, kind, field, default=kind)


def singles(grader: Grader) -> tuple[Single, ...]:
    """The grader itself, or those that a multi grader combines."""
    return tuple(grader.graders.values()) if isinstance(grader, Multi) else (grader,)


def models_of(grader: Grader) -> frozenset[str]:
    """Names of the models that it asks."""
    return frozenset(each.model for each in singles(grader) if isinstance(each, ScoreModel | LabelModel))


def columns_of(grader: Grader) -> frozenset[str]:
    """Columns of the records that its templates read; those that a python grader reads are not known."""
    return frozenset(column for each in singles(grader) for text in _texts(each) for column in templates.columns(text))


def _texts(grader: Single) -> tuple[str, ...]:
    if isinstance(grader, StringCheck | TextSimilarity):
        return grader.input, grader.reference
    return () if isinstance(grader, Python) else tuple(message.content for message in grader.messages)


def _object(value: object, field: str, types: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    if not isinstance(value, Mapping):
        raise BadSpec("must be an object with a type", field=field)
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in types:
        raise BadSpec(f"must be one of {', '.join(types)}", field=f"{field}.type")
    return cast("Mapping[str, Any]", value), kind


def _single(values: Mapping[str, Any], kind: str, field: str, default: str) -> Single:
    name = _text(values, "name", field, _LONGEST_NAME) if "name" in values else default
    return _SINGLES[kind](values, name, field)


def _multi(values: Mapping[str, Any], field: str) -> Multi:
    _refuse_unknown(values, ("graders", "calculate_output"), field)
    name = _text(values, "name", field, _LONGEST_NAME) if "name" in values else MULTI
    graders = {name: _nested(each, name, f"{field}.graders.{name}") for name, each in _named(values, field).items()}
    said = f"{field}.calculate_output"
    try:
        formula = Formula(_text(values, "calculate_output", field, LONGEST_TEXT))
    except InvalidFormula as error:
        raise BadSpec(str(error), field=said) from error
    if unknown := sorted(formula.names - graders.keys()):
        raise BadSpec(f"no grader is called {unknown[0]}; known: {', '.join(graders)}", field=said)
    return Multi(name, graders, formula)


def _named(values: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """The graders by name. One grader alone, as the types of OpenAI's client have it, goes by its own name."""
    found, field = values.get("graders"), f"{field}.graders"
    if not isinstance(found, Mapping) or not found:
        raise BadSpec("must be an object with a grader for each name", field=field)
    if isinstance(found.get("type"), str):
        found = {str(found.get("name") or found["type"]): found}
    if len(found) > MOST_GRADERS:
        raise BadSpec(f"has {len(found)} graders; at most {MOST_GRADERS}", field=field)
    for name in found:
        if not is_name(str(name)):
            raise BadSpec(
                f"{str(name)[:64]!r} is no name of a grader: names are letters, digits and _, begin with no digit, "
                "and are no function of calculate_output",
                field=field,
            )
    return cast("Mapping[str, Any]", found)


def _nested(value: object, name: str, field: str) -> Single:
    values, kind = _object(value, field, TYPES)
    if kind == MULTI:
        raise BadSpec("a multi grader can't be a part of another one", field=f"{field}.type")
    return _single(values, kind, field, default=name)


def _string_check(values: Mapping[str, Any], name: str, field: str) -> StringCheck:
    _refuse_unknown(values, ("input", "reference", "operation"), field)
    operation = _choice(values, "operation", field, OPERATIONS)
    return StringCheck(name, _template(values, "input", field), _template(values, "reference", field), operation)


def _text_similarity(values: Mapping[str, Any], name: str, field: str) -> TextSimilarity:
    _refuse_unknown(values, ("input", "reference", "evaluation_metric", "pass_threshold"), field)
    metric, said = values.get("evaluation_metric"), f"{field}.evaluation_metric"
    if isinstance(metric, str) and metric in _NOT_HERE:
        raise NotSupportedYet(
            f"{metric} is not supported: {_NOT_HERE[metric]}; use one of {', '.join(METRICS)}", field=said
        )
    _choice(values, "evaluation_metric", field, METRICS)
    _threshold(values, field)
    return TextSimilarity(name, _template(values, "input", field), _template(values, "reference", field), str(metric))


def _score_model(values: Mapping[str, Any], name: str, field: str) -> ScoreModel:
    _refuse_unknown(values, ("model", "input", "range", "sampling_params", "pass_threshold"), field)
    _threshold(values, field)
    low, high = _range(values, f"{field}.range")
    model = _text(values, "model", field, _LONGEST_NAME)
    return ScoreModel(name, model, _messages(values, field), low, high, _sampling(values, f"{field}.sampling_params"))


def _label_model(values: Mapping[str, Any], name: str, field: str) -> LabelModel:
    _refuse_unknown(values, ("model", "input", "labels", "passing_labels", "sampling_params"), field)
    labels, passing = _labels(values, "labels", field), _labels(values, "passing_labels", field)
    if unknown := [each for each in passing if each not in labels]:
        raise BadSpec(f"{unknown[0][:64]!r} is none of labels", field=f"{field}.passing_labels")
    model = _text(values, "model", field, _LONGEST_NAME)
    sampling = _sampling(values, f"{field}.sampling_params")
    return LabelModel(name, model, _messages(values, field), labels, frozenset(passing), sampling)


def _python(values: Mapping[str, Any], name: str, field: str) -> Python:
    _refuse_unknown(values, ("source", "image_tag", "pass_threshold"), field)
    if not isinstance(values.get("image_tag", ""), str):
        raise BadSpec("must be a text", field=f"{field}.image_tag")
    _threshold(values, field)
    source = _text(values, "source", field, LONGEST_SOURCE)
    _check_source(source, f"{field}.source")
    return Python(name, source)


_SINGLES: Mapping[str, Callable[[Mapping[str, Any], str, str], Single]] = {
    STRING_CHECK: _string_check,
    TEXT_SIMILARITY: _text_similarity,
    SCORE_MODEL: _score_model,
    LABEL_MODEL: _label_model,
    PYTHON: _python,
}


def _check_source(source: str, field: str) -> None:
    if (size := len(source.encode(errors="surrogatepass"))) > LONGEST_SOURCE:
        raise BadSpec(f"has {size:,} bytes; at most {LONGEST_SOURCE:,}", field=field)
    try:
        with _parsing, warnings.catch_warnings():  # filters of warnings belong to the process, not to a thread
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        raise BadSpec(f"is no Python: line {error.lineno}: {error.msg}", field=field) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadSpec(f"is no Python: {error or type(error).__name__}", field=field) from error
    if not any(isinstance(each, ast.FunctionDef) and each.name == FUNCTION for each in tree.body):
        raise BadSpec(f"defines no function {FUNCTION}(sample, item)", field=field)


def _messages(values: Mapping[str, Any], field: str) -> tuple[ChatMessage, ...]:
    given, field = values.get("input"), f"{field}.input"
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_MESSAGES:
        raise BadSpec(f"must be a list of 1 to {_MOST_MESSAGES} messages", field=field)
    return tuple(_message(each, f"{field}[{place}]") for place, each in enumerate(given))


def _message(value: object, field: str) -> ChatMessage:
    if not isinstance(value, Mapping):
        raise BadSpec("must be an object with role and content", field=field)
    if unknown := sorted(str(each) for each in value.keys() - {"type", "role", "content"}):
        raise BadSpec("is unknown; known: role, content, type", field=f"{field}.{unknown[0][:64]}")
    if value.get("type", "message") != "message":
        raise BadSpec("must be message", field=f"{field}.type")
    role = _choice(cast("Mapping[str, Any]", value), "role", field, ROLES)
    content, field = value.get("content"), f"{field}.content"
    parts = content if isinstance(content, list) else [content]
    text = "".join(_part(each, field) for each in parts)
    if not text or len(text) > LONGEST_TEXT:
        raise BadSpec(f"must have 1 to {LONGEST_TEXT:,} characters", field=field)
    return ChatMessage(role, _checked(text, field))


def _part(value: object, field: str) -> str:
    if isinstance(value, str):
        return value
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in _OTHER_PARTS:
        raise NotSupportedYet(f"{kind} is not supported: graders read text alone", field=field)
    if not isinstance(value, Mapping) or kind not in _TEXT_PARTS or not isinstance(value.get("text"), str):
        raise BadSpec("must be a text, or a list of parts of type input_text or output_text with a text", field=field)
    return str(value["text"])


def _range(values: Mapping[str, Any], field: str) -> tuple[float, float]:
    given = values.get("range")
    if given is None:
        return 0.0, 1.0
    if not isinstance(given, list) or len(given) != 2 or not all(map(_is_number, given)) or given[0] >= given[1]:
        raise BadSpec("must be two numbers, the lower one first", field=field)
    return float(given[0]), float(given[1])


_SAMPLING: Mapping[str, tuple[str, float, float, bool]] = {  # name in a chat completion, bounds, whole numbers only
    "temperature": ("temperature", 0, 2, False),
    "top_p": ("top_p", 0, 1, False),
    "seed": ("seed", -(2**63), 2**63 - 1, True),
    "max_completions_tokens": ("max_completion_tokens", 1, _MOST_TOKENS, True),
}


def _sampling(values: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    given = values.get("sampling_params")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadSpec("must be an object", field=field)
    known = (*_SAMPLING, "reasoning_effort")
    if unknown := sorted(str(each) for each in given.keys() - set(known)):
        raise BadSpec(f"is unknown; known: {', '.join(known)}", field=f"{field}.{unknown[0][:64]}")
    if given.get("reasoning_effort") is not None:
        raise NotSupportedYet("is not supported; leave it out", field=f"{field}.reasoning_effort")
    found = {}
    for name, (native, low, high, whole) in _SAMPLING.items():
        value = given.get(name)
        if value is None:
            continue
        if not _is_number(value) or (whole and not isinstance(value, int)) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise BadSpec(f"must be {kind} from {low} to {high}", field=f"{field}.{name}")
        found[native] = value
    return found


def _labels(values: Mapping[str, Any], name: str, field: str) -> tuple[str, ...]:
    given, field = values.get(name), f"{field}.{name}"
    is_list = isinstance(given, list) and 0 < len(given) <= _MOST_LABELS
    if not is_list or not all(isinstance(each, str) and 0 < len(each) <= _LONGEST_NAME for each in given or ()):
        raise BadSpec(f"must be a list of 1 to {_MOST_LABELS} texts of up to {_LONGEST_NAME} characters", field=field)
    found = tuple(cast("list[str]", given))
    if len(set(found)) != len(found):
        raise BadSpec("has a label twice", field=field)
    return found


def _threshold(values: Mapping[str, Any], field: str) -> None:
    """What counts as passed in OpenAI's evaluations; a reward has no such thing."""
    if values.get("pass_threshold") is not None and not _is_number(values["pass_threshold"]):
        raise BadSpec("must be a number", field=f"{field}.pass_threshold")


def _template(values: Mapping[str, Any], name: str, field: str) -> str:
    return _checked(_text(values, name, field, LONGEST_TEXT), f"{field}.{name}")


def _checked(text: str, field: str) -> str:
    try:
        templates.check(text)
    except templates.InvalidTemplate as error:
        raise BadSpec(str(error), field=field) from error
    return text


def _text(values: Mapping[str, Any], name: str, field: str, most: int) -> str:
    found = values.get(name)
    if not isinstance(found, str) or not found:
        raise BadSpec("must be a text that is not empty", field=f"{field}.{name}")
    if len(found) > most:
        raise BadSpec(f"has {len(found):,} characters; at most {most:,}", field=f"{field}.{name}")
    return found


def _choice(values: Mapping[str, Any], name: str, field: str, choices: Sequence[str]) -> str:
    found = values.get(name)
    if not isinstance(found, str) or found not in choices:
        raise BadSpec(f"must be one of {', '.join(choices)}", field=f"{field}.{name}")
    return found


def _refuse_unknown(values: Mapping[str, Any], names: Sequence[str], field: str) -> None:
    known = ("type", "name", *names)
    if unknown := sorted(str(each) for each in values.keys() - set(known)):
        raise BadSpec(f"is unknown; known: {', '.join(known)}", field=f"{field}.{unknown[0][:64]}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
