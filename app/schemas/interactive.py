"""Sessions and ports of running jobs on the wire."""

import json
import re
from typing import Any

from marshmallow import Schema, fields, post_load, validate, validates_schema

from app.domain.errors import InvalidRequest
from app.domain.interactive import EXEC, KINDS, PORT_FORWARD, SHELL
from app.domain.spec.roles import ROLE_NAME
from app.schemas.documents import DocumentSchema
from app.schemas.queries import ListQuerySchema, OrderBy
from app.schemas.spec.tasks import ROLE_RULE
from app.schemas.strict_fields import AsStored, Choice, Flag, Matching, Moment, Whole, says
from app.services.interactive.sessions import WantedSession
from trainyard.protocol.interactive import MAX_REQUEST_BYTES, PROTOCOL

MOST_WORDS = 1024
LONGEST_WORD = 32 << 10
DEFAULT_TERM = "xterm-256color"
MOST_CELLS = 4096
SHORTEST_PORT_SECONDS = 30
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_WORD = re.compile(r"[^\x00\ud800-\udfff]*")
_HIGHEST_PORT = 65535
_ROOM = 1024  # of the request to the session server, beside the command
_PLACE = frozenset({"rank", "role", "index"})
# By kind, what a request may have beside the place.
_TAKES = {
    EXEC: frozenset({"command", "tty", "rows", "columns", "term"}),
    SHELL: frozenset({"rows", "columns", "term"}),
    PORT_FORWARD: frozenset({"port"}),
}


class CommandWord(Matching):
    """A word of a command: what a process can be given as an argument."""

    def __init__(self) -> None:
        super().__init__(_WORD, "must be text without NUL and lone surrogates, which no program can be given")
        self.validators.append(validate.Length(max=LONGEST_WORD))


class NewSessionSchema(DocumentSchema):
    """Loads as a WantedSession."""

    kind = Choice(KINDS, required=True, **says("exec: a command; shell: a login shell; port_forward: a TCP port"))
    rank = Whole(
        0,
        2**20,
        load_default=0,
        **says("Whose sandbox and environment it has; of a gang all ranks count, with a role those of its instance"),
    )
    role = Matching(ROLE_NAME, ROLE_RULE, **says("The role whose ranks count, for a job that has roles"))
    index = Whole(0, 2**20, **says("The instance of the role", default=0))
    command = fields.List(
        CommandWord(),
        validate=validate.Length(1, MOST_WORDS),
        **says("The program and its arguments, for exec; no shell reads them"),
    )
    tty = Flag(**says("Whether exec has a terminal; a shell always has", default=False))
    rows = Whole(1, MOST_CELLS, **says("Of the terminal at first", default=24))
    columns = Whole(1, MOST_CELLS, **says("Of the terminal at first", default=80))
    term = Matching(_TERM, "must be the name of a terminal", **says("The variable TERM", default=DEFAULT_TERM))
    port = Whole(1, _HIGHEST_PORT, **says("The TCP port, for port_forward"))

    @validates_schema
    def _fits(self, values: dict[str, Any], **_: Any) -> None:
        kind = values["kind"]
        needed = {EXEC: "command", PORT_FORWARD: "port"}.get(kind)
        if needed is not None and needed not in values:
            raise InvalidRequest(f"{needed} is required for kind {kind}", field=needed)
        if "index" in values and "role" not in values:
            raise InvalidRequest(
                "index is the number of an instance of a role: give role, or omit index", field="index"
            )
        for name in values.keys() - _PLACE - {"kind"} - _TAKES[kind]:
            owners = " and ".join(each for each in KINDS if name in _TAKES[each])
            raise InvalidRequest(f"{name} is for kind {owners}, not for {kind}; leave it out", field=name)
        if len(json.dumps(values.get("command", []))) > MAX_REQUEST_BYTES - _ROOM:
            most = (MAX_REQUEST_BYTES - _ROOM) >> 10
            raise InvalidRequest(f"command must have less than {most} KiB in all", field="command")

    @post_load
    def _wanted(self, values: dict[str, Any], **_: Any) -> WantedSession:
        kind = values["kind"]
        place = {"rank": values["rank"], "role": values.get("role"), "index": values.get("index", 0)}
        if kind == PORT_FORWARD:
            return WantedSession(kind=kind, request={"type": "connect", "port": values["port"]}, **place)
        request = {
            "type": "exec",
            "rank": values["rank"],
            "command": values.get("command", []),
            "tty": kind == SHELL or values.get("tty", False),
            "rows": values.get("rows", 24),
            "columns": values.get("columns", 80),
            "term": values.get("term", DEFAULT_TERM),
        }
        return WantedSession(kind=kind, request=request, **place)


class SessionQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at")


class SessionSchema(Schema):
    session_id = fields.String(attribute="row.id")
    job_id = fields.String(attribute="row.job_id")
    attempt = fields.Integer(attribute="row.attempt")
    kind = fields.String(attribute="row.kind", **says("exec, shell or port_forward"))
    rank = fields.Integer(attribute="row.rank", **says("Among all of the job"))
    role = fields.String(allow_none=True, **says("Whose instance has the rank; null: the job has no roles"))
    index = fields.Integer(allow_none=True, **says("The instance of the role"))
    command = fields.Function(
        lambda details: details.row.request.get("command", []),
        metadata={"type": "array", "items": {"type": "string"}, "description": "Empty: a login shell, or a port"},
    )
    port = fields.Function(lambda details: details.row.request.get("port"), metadata={"type": ["integer", "null"]})
    tty = fields.Function(lambda details: details.row.request.get("tty", False), metadata={"type": "boolean"})
    status = fields.String(**says("waiting for its client, open, or ended"))
    recorded = fields.Boolean(attribute="row.recorded", **says("Whether what it shows is kept"))
    created_by = fields.String(attribute="row.created_by", **says("The id of the key that opened it"))
    created_by_name = fields.String()
    created_at = Moment(attribute="row.created_at")
    started_at = Moment(attribute="row.started_at", allow_none=True, **says("When its client connected"))
    ended_at = Moment(attribute="row.ended_at", allow_none=True)
    end_reason = fields.String(attribute="row.end_reason")
    exit_code = fields.Integer(attribute="row.exit_code", allow_none=True)
    seconds = fields.Float(allow_none=True, **says("How long it was open"))
    bytes_in = fields.Integer(attribute="row.bytes_in", **says("To the job"))
    bytes_out = fields.Integer(attribute="row.bytes_out", **says("From the job"))


class OpenedSessionSchema(Schema):
    session = fields.Nested(SessionSchema)
    url = fields.String(**says("The WebSocket, ws or wss, at a gateway", format="uri"))
    ticket = fields.String(**says("For the header Authorization: Bearer of the WebSocket, once"))
    ticket_expires_at = Moment()
    protocol = fields.String(**says(f"The WebSocket's subprotocol: {PROTOCOL}"))


class PortEntrySchema(Schema):
    name = fields.String(attribute="port.name")
    port = fields.Integer(attribute="port.port", **says("0: that of the notebook, wherever it listens"))
    protocol = fields.String(attribute="port.protocol")
    url = fields.String(
        allow_none=True, **says("Its address for browsers, without a token; null: it has none, or none is served")
    )
    may_open = fields.Boolean(**says("Whether the caller may open it"))
    keep_prefix = fields.Boolean(attribute="port.keep_prefix")
    authorized_users = AsStored({"type": "array", "items": {"type": "string"}}, attribute="port.authorized_users")
    authorized_groups = AsStored({"type": "array", "items": {"type": "string"}}, attribute="port.authorized_groups")
    role = fields.String(
        attribute="port.role", allow_none=True, **says("Whose port it is; null: on the node of rank 0")
    )
    index = fields.Integer(attribute="port.index", **says("The instance of the role; 0 without one"))


class PortsSchema(Schema):
    ports = fields.List(fields.Nested(PortEntrySchema))


class PortUrlRequestSchema(DocumentSchema):
    seconds = Whole(
        SHORTEST_PORT_SECONDS,
        365 * 24 * 3600,
        **says("How long the address may be used; default, and at most, TRAINYARD_GATEWAY_PORT_SECONDS"),
    )


class PortUrlSchema(Schema):
    url = fields.String(**says("With the token: open it in a browser", format="uri"))
    token = fields.String(**says("For the parameter trainyard_token; who has it may open the port"))
    expires_at = Moment()
