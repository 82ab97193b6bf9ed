"""A vocabulary of the HTTP API: where it is served, who calls in it, and how it writes answers and errors."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from flask import Response, request

from app.database.engine import Database
from app.domain.errors import CredentialsInvalid, CredentialsMissing
from app.http.envelope import (
    Problem,
    Reply,
    envelope_schema,
    error_response,
    json_response,
    page_schema,
    problem_schema,
    success_body,
)
from app.security.known_keys import KnownKeys
from app.security.permissions import Caller
from app.services.access import keys

_ABOUT = """
Training jobs in, trained models out. `docs/api.md` says what a job document means.

- Success is `{"status":"success","data":…,"meta":{"request_id":…}}`,
  failure `{"status":"error","error":{…},"meta":{…}}`.
- A field or a query parameter that is not described here is refused with 422: a typing error is never ignored. `null`
  for an optional field of a body means that it is left out.
- No text may hold a NUL character or half of a surrogate pair; bodies are UTF-8, at most 1 MiB and 32 levels deep.
- Whole numbers are written without a fraction: 5, not 5.0.
- The same resources answer below `/v1/modules/scaimind`.
"""


class Dialect:
    """The native one. A foreign one says what differs; what its resources do is the same."""

    name = "native"
    title = "Trainyard"
    about = _ABOUT.strip()
    bases: tuple[str, ...] = ("/v1", "/v1/modules/scaimind")  # its paths begin with one of them
    prefix: str | None = None  # what its routes do not say themselves; None: the first of its bases
    also_refuses: Mapping[int, str] = MappingProxyType({})  # statuses of its own, with what they mean

    def caller(self, db: Database, known: KnownKeys | None) -> Caller:
        """Who makes this request; `known` as in `keys.authenticate`. Raises Unauthenticated."""
        return keys.authenticate(db, bearer_key(), known)

    def entered(self, db: Database, caller: Caller) -> Caller:  # noqa: ARG002 – the native paths name no project
        """The caller within the project that the path names, if it does. Raises NotFound."""
        return caller

    def body_of(self, reply: Reply) -> Any:
        """What is told, as JSON: also what is kept for the same request under the same Idempotency-Key."""
        return success_body(reply.data)

    def written(self, body: Any, status: int) -> Response:
        """The answer with what `body_of` gave."""
        return json_response(body, status)

    def failure(self, problem: Problem) -> Response:
        return error_response(problem)

    def status_of(self, status: int) -> int:
        """Which status tells a problem of this one of ours."""
        return status

    def answer_schema(self, answer: Any, items: str | None) -> Any:
        """JSON Schema of what `body_of` gives for this answer; `items` names the list in a page of it."""
        return envelope_schema(page_schema(answer, items))

    def error_schema(self) -> Any:
        """What `failure` tells, as JSON Schema or as a schema of marshmallow."""
        return problem_schema()

    def base_of(self, path: str) -> str:
        """The longest of its bases that the path begins with; empty if it does with none."""
        return max((base for base in self.bases if f"{path}/".startswith(f"{base}/")), key=len, default="")


NATIVE = Dialect()


def bearer_key() -> str:
    """What the header Authorization has of it."""
    header = request.headers.get("Authorization", "")
    if not header.strip():
        raise CredentialsMissing("send your API key in the header Authorization: Bearer <key>")
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer":
        raise CredentialsInvalid("the header Authorization must be: Bearer <key>")
    return key.strip()
