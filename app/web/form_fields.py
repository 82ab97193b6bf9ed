"""Fields of forms, whose values are texts."""

import math
import re

from marshmallow import ValidationError, fields

from app.schemas.queries import QueryMoment, QueryWhole
from app.schemas.strict_fields import Number

_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{0,15})?(?:[eE][+-]?[0-9]{1,3})?")
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?")

FormWhole = QueryWhole


class FormNumber(Number):
    """A decimal number in a range."""

    def _deserialize(self, value: object, *_: object, **__: object) -> float:
        if not isinstance(value, str) or _NUMBER.fullmatch(value.strip()) is None or not math.isfinite(float(value)):
            raise ValidationError("must be a number")
        return float(value)


class FormMoment(QueryMoment):
    """A time of an input `datetime-local`, which has no offset and means UTC here."""

    def _deserialize(self, value: object, *_: object, **__: object) -> object:  # type: ignore[override]  # as the base
        is_local = isinstance(value, str) and _LOCAL.fullmatch(value)
        return super()._deserialize(f"{value}Z" if is_local else value)


class Lines(fields.Field[list[str]]):
    """Several texts, one a line, loaded as their list; blank lines do not count."""

    def _deserialize(self, value: object, *_: object, **__: object) -> list[str]:
        if not isinstance(value, str):
            raise ValidationError("must be text")
        return [line.strip() for line in value.splitlines() if line.strip()]
