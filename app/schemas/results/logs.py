"""Log lines on the wire."""

import re
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

from marshmallow import Schema, fields, validate

from app.domain.errors import InvalidRequest
from app.domain.spec.model import JobDocument
from app.domain.spec.roles import ROLE_NAME
from app.patterns.log_patterns import MAX_PATTERN
from app.schemas.queries import QueryFlag, QueryMoment, QueryWhole
from app.schemas.spec.tasks import ROLE_RULE
from app.schemas.strict_fields import SOMETIMES, Matching, says
from app.services.attempts.placed_instances import ranks_of_role
from app.services.telemetry.log_search import MAX_FOUND, FoundLines, WantedLines
from app.storage.logs import START, Cursor, LogLine, LogLines, Ranks

MAX_LINES = 10_000
MAX_TEXT = 500
# An attempt and the number of a line; of several nodes, a number of each.
CURSOR = re.compile(r"([0-9]{1,9}):([0-9]{1,15}(?:,[0-9]{1,15})*)")
# Parameters of a search, which is what a request with one of them is.
_SEARCH = ("q", "pattern", "since", "until", "attempt", "after", "limit")


class LogQuerySchema(Schema):
    tail = QueryWhole(0, MAX_LINES)
    follow = QueryFlag(load_default=True)
    rank = QueryWhole(0, 65536)
    role = Matching(ROLE_NAME, ROLE_RULE, **says("Only lines of this role, of a job that has roles"))
    q = fields.String(validate=validate.Length(1, MAX_TEXT), **says("search: a text in the line, in any case"))
    pattern = fields.String(
        validate=validate.Length(1, MAX_PATTERN), **says("search: a regular expression in RE2's syntax")
    )
    since = QueryMoment(data_key="from", **says("search: no lines before this time"))
    until = QueryMoment(data_key="to", **says("search: no lines after this time"))
    attempt = QueryWhole(1, 999_999_999, **says("search: only lines of this attempt"))
    after = Matching(
        CURSOR,
        "must be `next` of an earlier answer, such as 1:5000",
        **says("search: continue at `next` of the answer before"),
    )
    limit = QueryWhole(1, MAX_FOUND, **says(f"search: at most so many lines, by default {MAX_FOUND:,}"))


class LogLineSchema(Schema):
    id = fields.String()
    attempt = fields.Integer()
    n = fields.Integer()
    at = fields.String()
    rank = fields.Integer()
    line = fields.String()


class LogLinesSchema(Schema):
    lines = fields.List(fields.Nested(LogLineSchema))


class FoundLogLinesSchema(LogLinesSchema):
    """``next`` and ``searched`` are of a search only."""

    next = fields.String(
        allow_none=True,
        metadata={"description": "of a search: where it continues; null when all is searched", SOMETIMES: True},
    )
    searched = fields.Integer(
        metadata={"description": "of a search: how many lines this request has searched", SOMETIMES: True}
    )


def is_search(query: Mapping[str, Any]) -> bool:
    return any(name in query for name in _SEARCH)


def asked_ranks(document: JobDocument, query: Mapping[str, Any]) -> Ranks:
    """The ranks whose lines are asked for. Raises InvalidRequest for a role that the job does not have."""
    if "role" not in query:
        rank: int | None = query.get("rank")
        return rank
    if "rank" in query:
        raise InvalidRequest("a rank has one role; omit rank or role", field="role")
    return ranks_of_role(document, query["role"])


def wanted_lines(query: Mapping[str, Any], rank: Ranks) -> WantedLines:
    return WantedLines(
        text=query.get("q", ""),
        pattern=query.get("pattern", ""),
        since=query.get("since"),
        until=query.get("until"),
        rank=rank,
        attempt=query.get("attempt"),
    )


def found_on_the_wire(found: FoundLines) -> dict[str, Any]:
    return {
        "lines": [line_on_the_wire(line) for line in found.lines],
        "next": cursor_text(found.after) if found.after is not None else None,
        "searched": found.searched,
    }


def cursor_of(query: Mapping[str, Any]) -> Cursor:
    """Where a search begins."""
    if "after" not in query:
        return START
    attempt, _, numbers = query["after"].partition(":")
    return int(attempt), *map(int, numbers.split(","))


def cursor_text(cursor: Cursor) -> str:
    return f"{cursor[0]}:{','.join(map(str, cursor[1:]))}"


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


def frames_on_the_wire(lines: LogLines) -> str:
    """A server-sent event for each line, exactly as those of ``line_on_the_wire`` one by one, which cost ten times as
    much. The event's id is the cursor after the line.
    """
    attempt, numbers = lines.attempt, range(lines.first, lines.last + 1, lines.step)
    rest = f',"at":{encode_basestring_ascii(lines.at)},"rank":{lines.rank},"line":'
    lower = "".join(f"{number}," for number in lines.before[: lines.node])
    higher = "".join(f",{number}" for number in lines.before[lines.node + 1 :])
    return "".join(
        f'id: {attempt}:{lower}{n}{higher}\ndata: {{"id":"{attempt}:{n}","attempt":{attempt},"n":{n}{rest}{text}}}\n\n'
        for n, text in zip(numbers, map(encode_basestring_ascii, lines.texts), strict=True)
    )
