"""Idempotency-Key: replays the first response to a repeated request; 409 if the key is reused for another request.

Where clients of a dialect say that they send a request again, its content is the key.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from flask import Response, g, request
from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest
from app.http.context import base_path, caller, dialect, plane
from app.http.envelope import Reply, warning_headers
from app.models.base import utc_now
from app.services.requests import idempotency
from app.services.requests.idempotency import RequestKey, Sent, StoredResponse

HEADER = "Idempotency-Key"
_FORM = re.compile(r"[\x21-\x7e]{1,255}")


class ReplyRecorder:
    """Renders the reply within the use case's transaction and stores it there if the request has an Idempotency-Key.

    ``sealed`` encrypts the stored reply, for replies that contain a secret.
    """

    def __init__(self, render: Callable[[Session, Any], Reply], *, sealed: bool = False) -> None:
        self._render = render
        self._sealed = sealed
        self._reply: Reply | None = None

    def __call__(self, session: Session, made: object) -> None:
        self._reply = self._render(session, made)
        request_key: RequestKey | None = g.get("idempotent_request")
        if request_key is not None:
            body = dialect().body_of(self._reply)
            stored = {"sealed": plane().box.seal(body)} if self._sealed else body
            if self._reply.warnings:
                stored = {"warnings": list(self._reply.warnings), "warned": stored}
            answer = StoredResponse(status_code=self._reply.status, body=stored, location=self._reply.location)
            idempotency.remember(session, request_key, answer)

    @property
    def only_renders(self) -> bool:
        """Whether there is nothing to store."""
        return "idempotent_request" not in g

    @property
    def reply(self) -> Reply:
        if self._reply is None:
            raise LookupError("the use case did not call on_written")
        return self._reply


def may_replay() -> bool:
    """Whether a stored response may answer this request."""
    return HEADER in request.headers or bool(dialect().is_repeat())


def begin(document: dict[str, Any], *, runs_again: bool = False) -> Response | None:
    """The stored response to this request, if there is one.

    ``runs_again``: a request without a key of the client is carried out first, and only a conflict is answered so.
    """
    is_repeat = dialect().is_repeat()
    if HEADER in request.headers:
        g.idempotent_request = _request_key(document, _given_key())
    elif is_repeat is not None:
        key = _derived_key(document, Sent.AGAIN if is_repeat else Sent.FIRST)
        g.idempotent_request = replace(key, runs_again=runs_again)
        if runs_again:
            return None
    else:
        return None
    return replay() if may_replay() else None


def replay() -> Response | None:
    """The response of an earlier, or a concurrent, request with the same key that committed first, if there is one."""
    if "idempotent_request" not in g:
        return None
    answer = idempotency.stored_response(plane().db, g.idempotent_request)
    return _response(answer) if answer is not None else None


def _given_key() -> str:
    key = request.headers[HEADER]
    if _FORM.fullmatch(key) is None:
        raise InvalidRequest(f"{HEADER} must be 1 to 255 printable ASCII characters without spaces", field=HEADER)
    return key


def _request_key(document: dict[str, Any], key: str) -> RequestKey:
    asked = [request.method, request.path.removeprefix(base_path()), sorted(request.args.items(multi=True)), document]
    return RequestKey(
        project=caller().home_project,
        key_id=caller().key_id,
        idempotency_key=key,
        request_hash=plane().box.fingerprint(json.dumps(asked, sort_keys=True)),
    )


def _derived_key(document: dict[str, Any], sent: Sent) -> RequestKey:
    key = _request_key(document, "")
    # With a space, which keys of clients don't contain.
    key = replace(key, idempotency_key=f"content {key.request_hash}", sent=sent)
    if sent is Sent.AGAIN:
        return key
    stored_at, arrived_at = idempotency.stored_at(plane().db, key), _arrived_at()
    # A busy server may read this request after it has answered the one by which the client repeated it.
    return replace(key, earlier=stored_at if stored_at is not None and stored_at < arrived_at else None)


def _arrived_at() -> datetime:
    """When the request's head was read: its body may take long to arrive."""
    return utc_now() - timedelta(seconds=time.perf_counter() - g.began_at)


def _response(answer: StoredResponse) -> Response:
    stored, warnings = answer.body, ()
    if "warned" in stored:
        stored, warnings = stored["warned"], stored["warnings"]
    body = plane().box.open(stored["sealed"]) if "sealed" in stored else stored
    response = dialect().written(body, answer.status_code)
    for name, value in warning_headers(warnings):
        response.headers.add(name, value)
    if answer.location is not None:
        response.headers["Location"] = answer.location
    response.headers["Idempotency-Replayed"] = "true"
    return response
