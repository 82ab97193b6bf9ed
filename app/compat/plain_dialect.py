"""Base of dialects whose responses are plain documents and whose paths may name a project."""

from typing import Any, ClassVar

from flask import Response, request

from app.database.engine import Database
from app.domain.errors import NotFound
from app.http.dialect import Dialect
from app.http.envelope import BodySchema, Reply, json_response
from app.security.permissions import Caller
from app.services.access import projects


class Plain(Dialect):
    """Responses have no envelope; each API has its own form of lists."""

    named_project = ""  # the path parameter with the project; empty: there is none
    documents: ClassVar[dict[str, Any]] = {"type": "object"}  # schema of responses without a declared one

    def entered(self, db: Database, caller: Caller) -> Caller:
        project = (request.view_args or {}).get(self.named_project)
        if project is None:
            return caller
        try:
            return projects.enter(db, caller, project)
        except NotFound as error:
            raise self.no_project(project) from error

    def no_project(self, project: str) -> NotFound:
        """The error for a project that does not exist or that the caller does not see."""
        return NotFound(f"there is no project {project[:63]}")

    def describes(self, path: str) -> bool:  # noqa: ARG002 – their bases have different paths
        return True

    def body_of(self, reply: Reply) -> dict[str, Any]:
        body: dict[str, Any] = reply.data
        return body

    def written(self, body: dict[str, Any], status: int) -> Response:
        return json_response(body, status)

    def answer_schema(self, answer: BodySchema | None, items: str | None) -> BodySchema:  # noqa: ARG002 – their lists are declared, too
        return answer if answer is not None else self.documents
