"""Fields without type coercion: no ``"5"`` for 5, no ``true`` for 1, no 5.0 for 5; and times on the wire."""

import math
import re
from collections.abc import Sized
from datetime import UTC, datetime
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.domain.names import WORD, WORD_RULE
from app.domain.spec.quoting import kind_of
from app.domain.suggestions import did_you_mean
from app.patterns.script_metrics import InvalidPattern, metric_patterns

NAME = re.compile(r"[A-Za-z0-9._\- ]{1,128}")
_INTEGER, _NUMBER, _FLAG = (
    re.compile(form) for form in ("-?[0-9]{1,15}", r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE]-?[0-9]{1,3})?", "true|false")
)
LARGEST = 2**53 - 1  # larger integers lose precision in JSON parsers that use doubles
LARGEST_OF_64_BITS = 2**63 - 1  # the maximum of a 64-bit column
_UNBOUNDED = 1e300  # bounds from here on are those of floats, and no message names them
_LARGEST_SCALAR = 1e99  # larger integers have more digits than are read
SOMETIMES = "sometimes"  # metadata of a field that a response may omit


def says(meaning: str, **more: Any) -> dict[str, Any]:
    """Field metadata for the OpenAPI document; ``default`` documents a default that is applied later than here."""
    return {"metadata": {"description": meaning, **more}}


class Text(fields.String):
    """A string of bounded length."""

    def __init__(self, *, longest: int = 1024, shortest: int = 0, **kwargs: Any) -> None:
        super().__init__(validate=_Length(shortest, longest), **kwargs)


class _Length(validate.Length):
    """``what`` is counted."""

    def __init__(self, shortest: int, longest: int, *, what: str = "characters") -> None:
        super().__init__(min=shortest, max=longest)
        self.what = what

    def _format_error(self, value: Sized, message: str) -> str:  # noqa: ARG002 – marshmallow's signature
        if not len(value):
            return "must not be empty"
        span = f"at most {self.max}" if not self.min else f"{self.min} to {self.max}"
        return f"must have {span} {self.what}, not {len(value)}"


class OneOrSeveral(fields.Field[Any]):
    """A string of bounded length, or a list of them."""

    def __init__(self, *, longest: int, most: int, metadata: dict[str, Any], **kwargs: Any) -> None:
        word = {"type": "string", "maxLength": longest}
        items = {"items": {**word, "minLength": 1}, "minItems": 1, "maxItems": most}
        super().__init__(metadata={**word, **items, "type": ["string", "array"], **metadata}, **kwargs)
        self._one = fields.String(validate=validate.Length(max=longest))
        self._several = fields.List(
            fields.String(validate=validate.Length(1, longest)), validate=validate.Length(1, most)
        )

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if not isinstance(value, str | list):
            raise ValidationError("must be a string or a list of strings")
        return self._one.deserialize(value) if isinstance(value, str) else self._several.deserialize(value)


class Matching(fields.String):
    """A string that matches a pattern; ``rule`` is its error message."""

    def __init__(self, pattern: re.Pattern[str], rule: str, **kwargs: Any) -> None:
        # \Z, not $, which also matches before a trailing newline.
        super().__init__(validate=validate.Regexp(rf"(?:{pattern.pattern})\Z", error=rule), **kwargs)


class Choice(fields.String):
    """One of several values; the error message lists them."""

    def __init__(self, choices: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(validate=_OneOf(choices), **kwargs)


class _OneOf(validate.OneOf):
    def _format_error(self, value: object) -> str:
        accepted = [str(each) for each in self.choices]
        return f"must be one of {', '.join(accepted)}{did_you_mean(str(value), accepted)}"


class Whole(fields.Integer):
    """A JSON integer in a range; ``rule`` is the error message of another one, where a range does not explain it."""

    def __init__(self, low: int = 0, high: int = LARGEST, *, rule: str | None = None, **kwargs: Any) -> None:
        super().__init__(validate=validate.Range(low, high, error=rule or _range(low, high)), **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> int:
        if type(value) is not int:
            raise ValidationError("must be an integer" + _without_quotes(value, _INTEGER))
        return value


class Number(fields.Float):
    """A JSON number in a range."""

    def __init__(self, low: float = -math.inf, high: float = math.inf, **kwargs: Any) -> None:
        super().__init__(validate=validate.Range(low, high, error=_range(low, high)), **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> float:
        if type(value) is not int and type(value) is not float:
            raise ValidationError("must be a number" + _without_quotes(value, _NUMBER))
        return float(value)


class Flag(fields.Boolean):
    """true or false."""

    def _deserialize(self, value: object, *_: Any, **__: Any) -> bool:
        if type(value) is not bool:
            raise ValidationError("must be true or false" + _without_quotes(value, _FLAG))
        return value


def _range(low: float, high: float) -> str | None:
    """What a number must be, in words; None without bounds."""
    least, most = (f"{each:.15g}" if isinstance(each, float) else str(each) for each in (low, high))
    if high in (LARGEST, LARGEST_OF_64_BITS) or high >= _UNBOUNDED:
        return None if low == -math.inf else f"must be at least {least}"
    return f"must be at most {most}" if low == -math.inf else f"must be from {least} to {most}"


def _without_quotes(value: object, form: re.Pattern[str]) -> str:
    """The way out for a value of the right form that is a string."""
    return f"; write {value} without quotes" if isinstance(value, str) and form.fullmatch(value) else ""


class TextMap(fields.Dict):
    """An object of strings with bounded size, keys and values."""

    def __init__(
        self, *, keys: re.Pattern[str], rule: str, most: int = 100, longest: int = 4096, **kwargs: Any
    ) -> None:
        super().__init__(
            keys=Matching(keys, rule), values=Text(longest=longest), validate=validate.Length(max=most), **kwargs
        )


class Scalar(fields.Field[str]):
    """A string, a number, or true or false, loaded as the text that means it."""

    def __init__(self, *, longest: int = 4096) -> None:
        super().__init__(
            validate=_Length(0, longest),
            metadata={
                "type": ["string", "number", "boolean"],
                "maxLength": longest,
                "minimum": -_LARGEST_SCALAR,
                "maximum": _LARGEST_SCALAR,
            },
        )

    def _deserialize(self, value: object, *_: Any, **__: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float) and not math.isfinite(value):
            raise ValidationError("must be finite")
        if isinstance(value, int | float):
            if abs(value) > _LARGEST_SCALAR:
                raise ValidationError(f"must be from {-_LARGEST_SCALAR:g} to {_LARGEST_SCALAR:g}")
            return repr(value)  # the shortest text that is read as the same number
        if not isinstance(value, str):
            raise ValidationError(f"must be a string, a number, true or false, not {kind_of(value)}")
        return value


class ScalarMap(TextMap):
    """A TextMap whose values may be numbers and booleans, too; they are loaded as text: 0.003, 10, true."""

    def __init__(
        self, *, keys: re.Pattern[str], rule: str, most: int = 100, longest: int = 4096, **kwargs: Any
    ) -> None:
        super().__init__(keys=keys, rule=rule, most=most, longest=longest, **kwargs)
        self.value_field = Scalar(longest=longest)


class ScriptOptions(ScalarMap):
    """Options of a script; ``metric.NAME`` holds a pattern of the log lines that report a metric."""

    def _deserialize(self, value: object, *args: Any, **kwargs: Any) -> dict[str, str]:
        found: dict[str, str] = super()._deserialize(value, *args, **kwargs)  # type: ignore[no-untyped-call]
        try:
            metric_patterns(found)
        except InvalidPattern as error:
            raise ValidationError({error.name: [str(error)]}) from error
        return found


class FreeObject(fields.Dict):
    """An object with arbitrary content."""

    def __init__(self, *, most: int = 100, **kwargs: Any) -> None:
        super().__init__(validate=validate.Length(max=most), **kwargs)


class ModelDefinition(fields.Field[bool | dict[str, Any]]):
    """A transformers configuration as an object with ``model_type``, or true for the configuration of the model."""

    def __init__(self, *, metadata: dict[str, Any], **kwargs: Any) -> None:
        shape = {
            "type": ["object", "boolean"],
            "properties": {"model_type": {"type": "string", "minLength": 1}},
            "required": ["model_type"],
        }
        super().__init__(metadata={**shape, **metadata}, **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> bool | dict[str, Any]:
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            raise ValidationError("must be true or a transformers configuration object")
        if not isinstance(value.get("model_type"), str) or not value["model_type"]:
            raise ValidationError("must have a model_type, such as llama, qwen2 or gpt2")
        return value


class Texts(fields.List[str]):
    """A list of short strings."""

    def __init__(self, *, most: int = 64, form: re.Pattern[str] = WORD, rule: str = WORD_RULE, **kwargs: Any) -> None:
        super().__init__(Matching(form, rule), validate=validate.Length(max=most), **kwargs)


class Amounts(fields.List[int]):
    """A list of positive integers of 32 bits; a rule of the document asks for an ascending one."""

    def __init__(self, *, shortest: int = 0, most: int = 1000, **kwargs: Any) -> None:
        super().__init__(Whole(1, 2**31 - 1), validate=validate.Length(shortest, most), **kwargs)


class Moment(fields.DateTime):
    """RFC 3339 in UTC with milliseconds; input must have an offset."""

    def _serialize(self, value: datetime | None, *_: Any, **__: Any) -> str | None:
        return None if value is None else on_the_wire(value)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> datetime:
        try:
            if not isinstance(value, str) or "T" not in value.upper():
                raise ValueError
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                raise ValueError
            return moment.astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise ValidationError("must be a time such as 2026-05-17T09:30:00Z") from error


def on_the_wire(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SectionField(fields.Nested):
    """A section of a job document: validated on input, serialized as stored."""

    def _serialize(self, nested_obj: object, *_: Any, **__: Any) -> object:  # type: ignore[override] # Field and Nested differ
        return nested_obj


class AsStored(fields.Raw):
    """Serialized as stored; ``of`` is its JSON Schema for the OpenAPI document."""

    def __init__(self, of: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(metadata=of, **kwargs)
