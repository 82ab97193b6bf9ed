"""Requests, responses and errors as CyxWiz's messages: protobuf's JSON with the .proto field names, or binary."""

from collections.abc import Iterator, Mapping
from typing import Any

from flask import Response, request
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.shapes import body_of, shape_of
from app.http.dialect import Dialect
from app.http.envelope import BodySchema, Problem, Reply, json_response
from app.http.errors import BadShape, MalformedJson
from app.http.request_body import check_content, read_body, whole_body

BINARY = "application/x-protobuf"
_BINARIES = (BINARY, "application/protobuf")
_RANGES = {
    FieldDescriptor.TYPE_INT32: "must be a whole number from -2147483648 to 2147483647",
    FieldDescriptor.TYPE_INT64: "must be a whole number from -9223372036854775808 to 9223372036854775807",
    FieldDescriptor.TYPE_DOUBLE: "must be a number",
    FieldDescriptor.TYPE_STRING: "must be a text",
}
# HTTP status → gRPC code.
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 409: 9, 413: 3, 415: 3, 422: 3, 429: 8, 501: 12, 503: 14}
_INTERNAL = 13


_ABOUT = """
CyxWiz's job execution over the jobs of Trainyard: `JobConfig`, `ProgressUpdate` and `CompletionReport`.

- Bodies are protobuf's JSON with the field names of `messages.proto`, or, with `Content-Type` and `Accept`
  `application/x-protobuf`, the messages in binary form.
- An error is a message `Error` with a gRPC code.
- `docs/reference/other-vocabularies.md` describes the effect of each field.
"""


class CyxWiz(Dialect):
    """Errors are a message `Error` with a gRPC code."""

    name = "cyxwiz"
    title = "Trainyard for clients of CyxWiz"
    about = _ABOUT.strip()
    bases = ("/compat/cyxwiz/v1",)

    def body_of(self, reply: Reply) -> dict[str, Any]:
        message: Message = reply.data
        return {"message": message.DESCRIPTOR.name, "fields": to_json(message)}

    def written(self, body: dict[str, Any], status: int) -> Response:
        return written(json_format.ParseDict(body["fields"], getattr(pb, body["message"])()), status)

    def failure(self, problem: Problem) -> Response:
        error = pb.Error(code=_CODES.get(problem.status, _INTERNAL), message=problem.named)
        error.details.extend(pb.FieldViolation(field=field, description=why) for field, why in problem.details)
        return written(error, self.status_of(problem.status))

    def status_of(self, status: int) -> int:
        # gRPC has only INVALID_ARGUMENT for both.
        return 400 if status == 422 else status

    def answer_schema(self, answer: BodySchema | None, items: str | None) -> BodySchema:  # noqa: ARG002 – pages are messages
        return answer if answer is not None else {"type": "object"}

    def error_schema(self) -> BodySchema:
        return shape_of(pb.Error)


CYXWIZ = CyxWiz()


class MessageBody:
    """A message in the form of its Content-Type."""

    def __init__(self, message: type[Message]) -> None:
        self._message = message

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        if request.mimetype not in _BINARIES:
            return read_body(optional=optional, max_nesting=max_nesting)
        message = self._message()
        try:
            message.ParseFromString(whole_body())
        except DecodeError as error:
            raise MalformedJson(
                f"the body is not a binary message {message.DESCRIPTOR.name}; serialize one by messages.proto, or "
                "send JSON with the header Content-Type: application/json"
            ) from error
        if len(UnknownFieldSet(message)) > 0:
            number = UnknownFieldSet(message)[0].field_number
            raise BadShape([(str(number), _no_field(message, "of that number"))])
        document = to_json(message)
        check_content(document, max_nesting=max_nesting)
        return document

    def load(self, document: dict[str, Any]) -> Message:
        message = self._message()
        if problems := [*_problems(document, message)]:
            raise BadShape(problems)
        return json_format.ParseDict(document, message)


def _problems(document: Mapping[str, Any], message: Message) -> Iterator[tuple[str, str]]:
    """(field, rule) of each value that protobuf's JSON parser refuses or would drop silently."""
    fields: dict[str, Any] = {name: each for each in message.DESCRIPTOR.fields for name in (each.name, each.json_name)}
    given: dict[str, str] = {}
    for name, value in document.items():
        field = fields.get(name)
        if field is None:
            yield name[:64], _no_field(message, "of that name")
        elif (before := given.setdefault(field.name, name)) != name:
            yield name, f"is the same field as {before}; set it once"
        elif not _fits(value, field, type(message)()):
            yield name, _rule_of(field)


def _fits(value: object, field: FieldDescriptor, alone: Message) -> bool:
    try:
        json_format.ParseDict({field.name: value}, alone)
    except json_format.ParseError:
        return False
    # protobuf accepts numbers that are not in the enum.
    return field.enum_type is None or getattr(alone, field.name) in field.enum_type.values_by_number


def _rule_of(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return f"must be one of {', '.join(field.enum_type.values_by_name)}"
    return _RANGES[field.type]


def _no_field(message: Message, which: str) -> str:
    known = ", ".join(field.name for field in message.DESCRIPTOR.fields)
    return f"{message.DESCRIPTOR.name} has no field {which}; its fields are {known or 'none'}"


def message_body(message: type[Message]) -> dict[str, Any]:
    """The arguments of an operation whose body is this message."""
    return {"body": body_of(message), "reader": MessageBody(message)}


def to_json(message: Message) -> dict[str, Any]:
    """All fields by their names in the .proto file, also those without a value."""
    found: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def written(message: Message, status: int = 200) -> Response:
    """The message in binary form where the client accepts it, else in JSON."""
    if request.accept_mimetypes.best_match(["application/json", *_BINARIES]) in _BINARIES:
        return Response(message.SerializeToString(), status=status, mimetype=BINARY)
    return json_response(to_json(message), status)
