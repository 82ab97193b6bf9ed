"""Log lines on the wire."""

from typing import Any

from marshmallow import Schema, fields

from app.schemas.queries import QueryFlag, QueryWhole
from app.storage.logs import LogLine

MAX_LINES = 10_000


class LogQuerySchema(Schema):
    tail = QueryWhole(0, MAX_LINES)
    follow = QueryFlag(load_default=True)
    rank = QueryWhole(0, 65536)


class LogLineSchema(Schema):
    id = fields.String()
    attempt = fields.Integer()
    n = fields.Integer()
    at = fields.String()
    rank = fields.Integer()
    line = fields.String()


class LogLinesSchema(Schema):
    lines = fields.List(fields.Nested(LogLineSchema))


def line_on_the_wire(line: LogLine) -> dict[str, Any]:
    """The line as a dict, without a schema, which would take longer than reading the line."""
    return {
        "id": f"{line.attempt}:{line.n}",
        "attempt": line.attempt,
        "n": line.n,
        "at": line.at,
        "rank": line.rank,
        "line": line.line,
    }
