"""Which messages a worker of ours reads: the form that our processes, and Celery's own clients, give them.

Celery trusts its broker: a message that is no JSON, or lacks a property, ends the worker that reads it, and its headers
may ask for more than a call (callbacks, retries at a later time, decompression). Everything here is pure.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeGuard

from app.services.requests.wakeups import ADMIT, NUDGE, RUN

# The longest of ours, 50 job ids, has 6 kB.
MOST_BYTES = 262_144

# Of Celery's remote control: what cancels and nudges jobs, and the questions of Flower and `celery inspect`. Others end
# workers, change what they consume or how fast, or silence their events.
COMMANDS = frozenset(
    {
        *("ping", "active", "active_queues", "clock", "conf", "query_task", "registered", "report", "reserved"),
        *("revoked", "scheduled", "stats", "rejected"),
        *("revoke", "terminate", "enable_events", "heartbeat", NUDGE),
    }
)

_LONGEST_NAME = 255
_LARGEST_CLOCK = 2**63


class Defect(Exception):
    """Why a message is not read."""


def check_task(raw: bytes, queue: str) -> None:
    """Check a message of the queue that asks for a task. Raises Defect."""
    message = _message(raw)
    headers, properties = message["headers"], message["properties"]
    # Celery puts an unacknowledged message back into the queue that the message names.
    if properties["delivery_info"].get("routing_key") != queue or properties["delivery_info"].get("exchange"):
        raise Defect("it says that it was sent to another queue")
    if unknown := headers.keys() - _HEADERS.keys():
        raise Defect(f"the header {min(unknown)[:_LONGEST_NAME]!r} is unknown")
    for name, is_right in _HEADERS.items():
        if not is_right(headers.get(name)):
            raise Defect(f"the header {name} has a wrong value")
    accepts = _ARGUMENTS.get(headers["task"])
    if accepts is None:
        raise Defect(f"the task {headers['task'][:_LONGEST_NAME]!r} is unknown")
    body = _body(message)
    if not (isinstance(body, list) and len(body) == 3):
        raise Defect("its body is not a list of arguments, keyword arguments and what follows")
    arguments, keywords, following = body
    if not isinstance(arguments, list) or not accepts(arguments) or keywords != {}:
        raise Defect(f"the arguments of {headers['task']} are wrong")
    if not isinstance(following, dict) or any(following.values()):
        raise Defect("it asks for further tasks")


def check_command(raw: bytes) -> None:
    """Check a message that asks for a command of Celery's remote control. Raises Defect."""
    message = _message(raw)
    clock = message["headers"].get("clock")
    if not (clock is None or (_is_whole(clock) and 0 <= clock < _LARGEST_CLOCK)):
        raise Defect("the header clock has a wrong value")
    body = _body(message)
    if not isinstance(body, dict):
        raise Defect("its body is not an object")
    for name, is_right in _COMMAND.items():
        if not is_right(body.get(name)):
            raise Defect(f"{name} has a wrong value")
    if body["method"] not in COMMANDS:
        raise Defect(f"the command {body['method']!r} is not available")


def _message(raw: bytes) -> dict[str, Any]:
    """The message, with the parts that the transport uses without looking."""
    if len(raw) > MOST_BYTES:
        raise Defect(f"it has {len(raw)} bytes; at most {MOST_BYTES} are read")
    message = _parsed(raw, "it")
    if not isinstance(message, dict):
        raise Defect("it is not an object")
    for name in ("headers", "properties"):
        if not isinstance(message.get(name), dict):
            raise Defect(f"{name} is missing or not an object")
    for name, is_right in _PROPERTIES.items():
        if not is_right(message["properties"].get(name)):
            raise Defect(f"the property {name} has a wrong value")
    if message.get("content-type") != "application/json" or message.get("content-encoding") != "utf-8":
        raise Defect("its content is not declared as JSON in UTF-8")
    if "compression" in message["headers"]:
        raise Defect("it is compressed")
    return message


def _body(message: Mapping[str, Any]) -> object:
    body = message.get("body")
    if not isinstance(body, str):
        raise Defect("its body is missing")
    try:
        content = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Defect("its body is not base64") from error
    return _parsed(content, "its body")


def _parsed(content: bytes, what: str) -> object:
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise Defect(f"{what} is not JSON") from error


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME


def _or_none(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_right(value)


def _is_empty(value: object) -> bool:
    return not value and isinstance(value, dict | list | str | None)


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _are_job_ids(arguments: list[Any]) -> bool:
    return all(map(_is_text, arguments))


def _are_attempts(arguments: list[Any]) -> bool:
    return all(
        isinstance(each, list) and len(each) == 2 and _is_text(each[0]) and _is_whole(each[1]) and 0 < each[1] < 2**31
        for each in arguments
    )


_ARGUMENTS: dict[str, Callable[[list[Any]], bool]] = {ADMIT: _are_job_ids, RUN: _are_attempts}

_PROPERTIES: dict[str, Callable[[object], bool]] = {
    "delivery_tag": _is_text,
    "delivery_info": lambda value: isinstance(value, dict),
    "body_encoding": lambda value: value == "base64",
    "priority": _or_none(lambda value: _is_whole(value) and 0 <= value <= 9),
    "reply_to": _or_none(_is_text),
    "correlation_id": _or_none(_is_text),
}

# All that Celery's clients write. A task has no start time, time limit or group here, so these headers are empty.
_HEADERS: dict[str, Callable[[object], bool]] = {
    "task": _is_text,
    "id": _is_text,
    "root_id": _or_none(_is_text),
    "parent_id": _or_none(_is_text),
    "lang": _or_none(_is_text),
    "origin": _or_none(_is_text),
    "expires": _or_none(_is_time),
    "retries": _or_none(lambda value: _is_whole(value) and value == 0),
    "ignore_result": _or_none(lambda value: isinstance(value, bool)),
    "replaced_task_nesting": _or_none(lambda value: _is_whole(value) and value == 0),
    "redelivered": _or_none(lambda value: isinstance(value, bool)),  # by Celery, when it puts a message back
    "argsrepr": _or_none(lambda value: isinstance(value, str)),
    "kwargsrepr": _or_none(lambda value: isinstance(value, str)),
    "timelimit": lambda value: value in (None, [None, None]),
    **dict.fromkeys(("shadow", "eta", "group", "group_index", "stamped_headers", "stamps"), _is_empty),
}


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_reply_address(value: object) -> bool:
    return isinstance(value, dict) and _is_text(value.get("exchange")) and _is_text(value.get("routing_key"))


_COMMAND: dict[str, Callable[[object], bool]] = {
    "method": _is_text,
    "arguments": _or_none(lambda value: isinstance(value, dict)),
    "destination": _or_none(_are_names),
    "pattern": _or_none(_is_text),
    "matcher": _or_none(_is_text),
    "reply_to": _or_none(_is_reply_address),
    "ticket": _or_none(_is_text),
}
