"""Requests that a client has sent to a scripted server, in a form that can be compared with a recording."""

import email
import json
from collections.abc import Mapping
from email.message import Message
from typing import Any

# Of HTTP itself, or different on each machine.
UNIMPORTANT = {"accept-encoding", "connection", "content-length", "host", "transfer-encoding", "user-agent"}
VALUES = ("accept", "content-type", "x-stainless-retry-count")  # headers whose values are compared, too

Seen = tuple[str, str, Message, bytes]


def recording(requests: Mapping[str, Seen]) -> dict[str, Any]:
    """The requests by kind, and the headers that all of them have."""
    found: dict[str, dict[str, Any]] = {
        kind: {"request": f"{method} {path}", "headers": _headers(headers), "body": _body(headers, body)}
        for kind, (method, path, headers, body) in requests.items()
    }
    shared = set.intersection(*(set(each["headers"]) for each in found.values())) - set(VALUES)
    for each in found.values():
        each["headers"] = {name: value for name, value in each["headers"].items() if name not in shared}
    return {"headers of all": sorted(shared), "requests": found}


def _headers(headers: Message) -> dict[str, str]:
    named = {name.lower(): value.partition(";")[0] for name, value in headers.items()}
    return {name: value if name in VALUES else "" for name, value in sorted(named.items()) if name not in UNIMPORTANT}


def _body(headers: Message, body: bytes) -> object:
    """A form as its fields in their order: head, content; JSON as it is."""
    kind = headers.get_content_type()
    if not kind.startswith("multipart/"):
        return json.loads(body) if body else None
    message = email.message_from_bytes(f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
    parts = [part for part in message.walk() if not part.is_multipart()]
    return [[*(f"{name}: {value}" for name, value in part.items()), part.get_payload()] for part in parts]
