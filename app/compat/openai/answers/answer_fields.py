"""Fields of requests that are one of several things, and fields without an effect of their own."""

import re
from collections.abc import Sequence
from typing import Any

from marshmallow import ValidationError, fields

from app.domain.spec.response_formats import JSON_SCHEMA, BadResponseFormat, check_response_format
from app.domain.spec.rules.inference import LONGEST_STOP, MOST_STOPS
from app.schemas.strict_fields import LARGEST

MOST_TOKEN = 2**31 - 1  # of a token's id
MOST_BIASES = 1024
LARGEST_BIAS = 100
_TOKEN = re.compile(r"0|[1-9][0-9]{0,9}")
_TOKEN_SCHEMA = {"type": "integer", "minimum": 0, "maximum": MOST_TOKEN}


class Only(fields.Field[Any]):
    """A field that is known and not acted on: it may say what happens anyway, and is then left out."""

    def __init__(self, *allowed: object, otherwise: str) -> None:
        shape: dict[str, Any] = {"enum": list(allowed)} if allowed else {"type": "null"}
        only = f"Only {_shown(allowed)}: " if allowed else "Refused: "
        super().__init__(metadata={"description": f"{only}{otherwise}", **shape})
        self._allowed, self._otherwise = allowed, otherwise

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if not any(type(value) is type(each) and value == each for each in self._allowed):
            only = f"may only be {_shown(self._allowed)}: " if self._allowed else ""
            raise ValidationError(f"{only}{self._otherwise}; leave it out")
        return value


def _shown(values: Sequence[object]) -> str:
    return " or ".join(str(each).lower() if isinstance(each, bool) else repr(each) for each in values)


class Stops(fields.Field[Any]):
    """One text at which an answer ends, or a list of up to four."""

    def __init__(self) -> None:
        text = {"type": "string", "minLength": 1, "maxLength": LONGEST_STOP}
        several = {"type": "array", "items": text, "minItems": 1, "maxItems": MOST_STOPS}
        super().__init__(metadata={"description": "Texts at which answers end", "anyOf": [text, several]})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not 0 < len(texts) <= MOST_STOPS:
            raise ValidationError(f"must be a text, or a list of 1 to {MOST_STOPS} texts")
        if not all(isinstance(each, str) and 0 < len(each) <= LONGEST_STOP for each in texts):
            raise ValidationError(f"texts that end an answer have 1 to {LONGEST_STOP} characters")
        return value


class TextsOrTokens(fields.Field[Any]):
    """A text, a list of texts, the ids of tokens, or a list of lists of them."""

    def __init__(self, *, most: int, may_be_empty: bool, meaning: str, **kwargs: Any) -> None:
        least = 0 if may_be_empty else 1
        text = {"type": "string", "minLength": least}
        tokens = {"type": "array", "items": _TOKEN_SCHEMA, "minItems": 1}
        lists = [{"type": "array", "items": item, "minItems": 1, "maxItems": most} for item in (text, tokens)]
        super().__init__(metadata={"description": meaning, "anyOf": [text, tokens, *lists]}, **kwargs)
        self._most, self._least = most, least

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if isinstance(value, str):
            self._check_text(value)
            return value
        if not isinstance(value, list) or not value:
            raise ValidationError("must be a text, a list of texts, ids of tokens, or a list of lists of them")
        if type(value[0]) is int:
            _check_tokens(value)
            return value
        if len(value) > self._most:
            raise ValidationError(f"has {len(value)} items; {self._most} are the most of one request")
        self._check_items(value)
        return value

    def _check_items(self, items: Sequence[object]) -> None:
        if isinstance(items[0], str):
            for item in items:
                self._check_text(item)
        else:
            for item in items:
                _check_tokens(item)

    def _check_text(self, text: object) -> None:
        if not isinstance(text, str):
            raise ValidationError("must have texts alone, or lists of tokens alone")
        if len(text) < self._least:
            raise ValidationError("must not be empty")


def _check_tokens(tokens: object) -> None:
    if not isinstance(tokens, list) or not tokens:
        raise ValidationError("must have lists of at least one token alone, or texts alone")
    if not all(type(each) is int and 0 <= each <= MOST_TOKEN for each in tokens):
        raise ValidationError(f"ids of tokens are whole numbers from 0 to {MOST_TOKEN}")


class Documents(fields.Field[Any]):
    """Texts, each alone or in an object."""

    def __init__(self, *, most: int, **kwargs: Any) -> None:
        text = {"type": "string", "minLength": 1}
        named = {"type": "object", "required": ["text"], "properties": {"text": text}}
        shape = {"type": "array", "items": {"anyOf": [text, named]}, "minItems": 1, "maxItems": most}
        super().__init__(metadata={"description": "Texts, or objects with a text", **shape}, **kwargs)
        self._most = most

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if not isinstance(value, list) or not 0 < len(value) <= self._most:
            raise ValidationError(f"must be a list of 1 to {self._most} documents")
        for index, document in enumerate(value):
            text = document.get("text") if isinstance(document, dict) else document
            if not isinstance(text, str) or not text:
                raise ValidationError({str(index): ["must be a text that is not empty, or an object with such a text"]})
        return value


class Biases(fields.Field[Any]):
    """What is added to the scores of tokens, by their ids."""

    def __init__(self) -> None:
        value = {"type": "number", "minimum": -LARGEST_BIAS, "maximum": LARGEST_BIAS}
        names = {"pattern": f"^({_TOKEN.pattern})$"}
        shape = {"type": "object", "additionalProperties": value, "propertyNames": names, "maxProperties": MOST_BIASES}
        super().__init__(metadata={"description": "Token → what is added to its score, -100 to 100", **shape})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if not isinstance(value, dict) or len(value) > MOST_BIASES:
            raise ValidationError(f"must be an object of up to {MOST_BIASES} tokens")
        for token, bias in value.items():
            if _TOKEN.fullmatch(token) is None:
                raise ValidationError({token: ["must be the id of a token"]})
            if type(bias) not in (int, float) or not abs(bias) <= LARGEST_BIAS:
                raise ValidationError({token: [f"must be a number from -{LARGEST_BIAS} to {LARGEST_BIAS}"]})
        return value


class ResponseFormat(fields.Field[Any]):
    """``text``, ``json_object``, or ``json_schema`` with a schema."""

    _TYPES = ("text", "json_object", JSON_SCHEMA)

    def __init__(self) -> None:
        schema = {"type": "object", "required": ["schema"], "properties": {"schema": {"type": "object"}}}
        shape = {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(self._TYPES)}}}
        shape["properties"] |= {JSON_SCHEMA: schema}  # type: ignore[operator] # of an object
        super().__init__(metadata={"description": "The form that answers have", **shape})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if not isinstance(value, dict):
            raise ValidationError("must be an object")
        kind = value.get("type")
        if kind not in self._TYPES:
            raise ValidationError({"type": [f"must be one of {', '.join(self._TYPES)}"]})
        if kind != JSON_SCHEMA:
            if JSON_SCHEMA in value:
                raise ValidationError({JSON_SCHEMA: [f"is of type {JSON_SCHEMA}"]})
            return {"type": kind}
        return {"type": kind, JSON_SCHEMA: self._checked(value.get(JSON_SCHEMA))}

    def _checked(self, named: object) -> object:
        if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
            raise ValidationError({JSON_SCHEMA: ["must have a schema, which is an object"]})
        try:
            check_response_format({"type": JSON_SCHEMA, "schema": named["schema"]})
        except BadResponseFormat as error:
            raise ValidationError({f"{JSON_SCHEMA}{error.part}": [str(error)]}) from error
        return named


class SignedWhole(fields.Field[Any]):
    """A whole number, also a negative one; numbers that lose precision in other parsers are refused."""

    def __init__(self, meaning: str) -> None:
        super().__init__(metadata={"description": meaning, "type": "integer", "minimum": -LARGEST, "maximum": LARGEST})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        if type(value) is not int or not -LARGEST <= value <= LARGEST:
            raise ValidationError(f"must be a whole number from -{LARGEST} to {LARGEST}")
        return value
