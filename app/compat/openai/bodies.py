"""What all answers and lists of OpenAI's API have in common."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from marshmallow import Schema, fields, validate

from app.domain.errors import TrainyardError
from app.schemas.documents import NothingSchema
from app.schemas.queries import QueryWhole, one_of
from app.schemas.strict_fields import TextMap, says

ASCENDING, DESCENDING = "asc", "desc"
MOST_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512
_KEY = re.compile(rf"[\s\S]{{1,{LONGEST_KEY}}}")


def json_body(schema: type[Schema], *, optional: bool = False) -> dict[str, Any]:
    """The arguments of an operation with this body. Every POST has a body, so that it can be repeated."""
    return {"body": schema, "body_optional": optional}


NO_BODY = json_body(NothingSchema, optional=True)  # of a POST without fields


def metadata_map(meaning: str) -> TextMap:
    """Pairs that a client attaches to an object."""
    rule = f"must be 1 to {LONGEST_KEY} characters"
    return TextMap(keys=_KEY, rule=rule, most=MOST_PAIRS, longest=LONGEST_VALUE, **says(meaning))


class CursorListQuerySchema(Schema):
    """``after`` is the id of the last item of the page before."""

    limit = QueryWhole(1, 100, load_default=20)
    after = fields.String(validate=validate.Length(max=255))
    order = one_of((ASCENDING, DESCENDING))


def listed(items: Sequence[dict[str, Any]], has_more: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 – as in the answer
    """A list with these items."""
    return {
        "object": "list",
        "data": list(items),
        "has_more": has_more,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
    }


def seconds(moment: datetime) -> int:
    """A time as a Unix time in whole seconds."""
    return int(moment.timestamp())


def seconds_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else seconds(moment)


def list_of(item: type[Schema]) -> type[Schema]:
    """The schema of a list of such items."""
    described: dict[str, Any] = {
        "object": fields.Constant("list"),
        "data": fields.List(fields.Nested(item)),
        "has_more": fields.Boolean(),
        "first_id": fields.String(allow_none=True),
        "last_id": fields.String(allow_none=True),
    }
    return type(f"ListOf{item.__name__.removesuffix('Schema')}sSchema", (Schema,), described)


@contextmanager
def fields_named(**names: str) -> Iterator[None]:
    """Errors that name a field of ours by that of the client: ours → the client's."""
    try:
        yield
    except TrainyardError as error:
        error.field = names.get(error.field or "", error.field)
        raise
