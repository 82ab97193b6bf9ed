"""A dialect of the HTTP API: its base paths, authentication, and response and error formats."""

import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from flask import Response, current_app, request

from app.database.engine import Database
from app.domain.errors import CredentialsInvalid, CredentialsMissing
from app.http.envelope import (
    BodySchema,
    Problem,
    Reply,
    envelope_schema,
    error_response,
    json_response,
    page_schema,
    problem_schema,
    success_body,
)
from app.security.key_cache import KeyCache
from app.security.permissions import Caller
from app.services.access import api_keys

ADMINISTRATOR_KEY = "ADMINISTRATOR_KEY"  # of the application's configuration
_ABOUT = """
Training jobs in, trained models out. `docs/reference/job-document.md` documents the job document.

- Success is `{"status":"success","data":…,"meta":{"request_id":…}}`,
  failure `{"status":"error","error":{…},"meta":{…}}`.
- Unknown fields and query parameters are rejected with 422: a typo is never ignored. `null` for an optional body field
  means that it is omitted.
- Strings must not contain NUL or lone surrogates; bodies are UTF-8, at most 1 MiB and 32 levels deep.
- Integers are written without a fraction: 5, not 5.0.
- The same resources are served below `/v1/modules/scaimind`.
"""


class Dialect:
    """The native dialect, and the base class of the others, which override what differs on the wire."""

    name = "native"
    title = "Trainyard"
    about = _ABOUT.strip()
    bases: tuple[str, ...] = ("/v1", "/v1/modules/scaimind")  # base paths
    prefix: str | None = None  # URL prefix of its blueprint; None: the first base
    also_refuses: Mapping[int, str] = MappingProxyType({})  # additional error statuses and their meanings

    def caller(self, db: Database, known: KeyCache | None) -> Caller:
        """The caller of this request; `known` as in `api_keys.authenticate`. Raises Unauthenticated."""
        presented = bearer_key()
        if is_administrator_key(presented):
            return api_keys.ADMINISTRATOR
        return api_keys.authenticate(db, presented, known)

    def entered(self, db: Database, caller: Caller) -> Caller:  # noqa: ARG002 – the native paths name no project
        """The caller restricted to the project in the path, if there is one. Raises NotFound."""
        return caller

    def body_of(self, reply: Reply) -> dict[str, Any]:
        """The JSON body of a reply; also stored for replays under an Idempotency-Key."""
        return success_body(reply.data)

    def written(self, body: dict[str, Any], status: int) -> Response:
        """The response with a body from `body_of`."""
        return json_response(body, status)

    def failure(self, problem: Problem) -> Response:
        return error_response(problem)

    def status_of(self, status: int) -> int:
        """The dialect's status for a native error status."""
        return status

    def answer_schema(self, answer: BodySchema | None, items: str | None) -> BodySchema:
        """JSON Schema of `body_of` for this answer schema; `items` names the list in a page."""
        return envelope_schema(page_schema(answer, items))

    def error_schema(self) -> BodySchema:
        """The schema of error bodies."""
        return problem_schema()

    def finish(self, response: Response) -> None:
        """Add the dialect's headers to any response."""

    def is_repeat(self) -> bool | None:
        """Whether the client says that it sends this request again, since an earlier answer got lost; None in dialects
        whose clients say nothing of the kind: only an Idempotency-Key makes their requests repeatable.
        """
        return None

    def describes(self, path: str) -> bool:
        """Whether the dialect's description contains this path of the dialect: once, where bases are equivalent."""
        return self.base_of(path) in ("", self.bases[0])

    def link_base(self, path: str) -> str:
        """The base path for links in the response to a request for this path."""
        return self.base_of(path)

    def base_of(self, path: str) -> str:
        """The longest base path that prefixes the path; empty if none does."""
        return max((base for base in self.bases if f"{path}/".startswith(f"{base}/")), key=len, default="")


NATIVE = Dialect()


def is_administrator_key(presented: str) -> bool:
    """Whether this is the key that a command line made for its own API; no other process has such a key."""
    own: str = current_app.config.get(ADMINISTRATOR_KEY, "")
    return bool(own) and secrets.compare_digest(presented.encode(), own.encode())


def bearer_key() -> str:
    """The API key of the Authorization header. Raises CredentialsMissing or CredentialsInvalid."""
    header = request.headers.get("Authorization", "")
    if not header.strip():
        raise CredentialsMissing("send your API key in the header Authorization: Bearer <key>")
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer":
        raise CredentialsInvalid("the header Authorization must be: Bearer <key>")
    return key.strip()
