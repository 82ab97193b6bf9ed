"""Query string schemas: values arrive as text; unknown and repeated parameters are errors."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from marshmallow import EXCLUDE, ValidationError, fields, validate

from app.schemas.documents import RequestSchema
from app.schemas.strict_fields import Choice, Moment

_DIGITS = re.compile(r"-?[0-9]{1,15}")
DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100


class QueryWhole(fields.Integer):
    """Decimal digits in a range."""

    def __init__(self, low: int, high: int, **kwargs: Any) -> None:
        super().__init__(validate=validate.Range(low, high), **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> int:
        if not isinstance(value, str) or _DIGITS.fullmatch(value) is None:
            raise ValidationError("must be an integer")
        return int(value)


class QueryFlag(fields.Boolean):
    """``true`` or ``false``, also written 1 or 0."""

    def _deserialize(self, value: object, *_: Any, **__: Any) -> bool:
        flags = {"true": True, "1": True, "false": False, "0": False}
        if value not in flags:
            raise ValidationError("must be true or false")
        return flags[value]


class QueryMoment(Moment):
    """A time; an unescaped ``+`` of its offset arrives as a space."""

    def _deserialize(self, value: object, *_: Any, **__: Any) -> datetime:
        return super()._deserialize(value.replace(" ", "+") if isinstance(value, str) else value)


class QueryTexts(fields.List[str]):
    """A repeatable parameter; ``a,b`` is equivalent to repeating it."""

    def _deserialize(
        self, value: Sequence[str], attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> list[Any]:
        words = [word for each in value for word in each.split(",") if word]
        if not words:
            raise ValidationError("must not be empty; omit it instead")
        return super()._deserialize(words, attr, data, **kwargs)


class OrderBy(Choice):
    """``order_by``: one of the columns, with ``-`` in front for descending order."""

    def __init__(self, *columns: str, default: str = "-created_at") -> None:
        super().__init__((*columns, *(f"-{column}" for column in columns)), load_default=default)


class ListQuerySchema(RequestSchema):
    page_size = QueryWhole(1, MAX_PAGE_SIZE, load_default=DEFAULT_PAGE_SIZE)
    page_token = fields.String(load_default="", validate=validate.Length(max=1024))


class AnyQuerySchema(RequestSchema):
    """Accepts and ignores every parameter."""

    class Meta:
        unknown = EXCLUDE


class NoQuerySchema(RequestSchema):
    """Accepts no parameters."""


def one_of(words: tuple[str, ...]) -> Choice:
    return Choice(tuple(str(word) for word in words))
