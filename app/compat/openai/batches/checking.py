"""Checks the body of each request of a batch as a single request with it would be checked. Pure.

Coordinators use it, which have no web framework loaded.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from marshmallow import Schema

from app.compat.openai.answers.schemas import ChatSchema, CompletionSchema, EmbeddingSchema
from app.domain.openai_paths import CHAT_COMPLETIONS, COMPLETIONS, EMBEDDINGS
from app.schemas.problems import content_problem, flat

INVALID = "validation_error"  # the code that a single request is refused with
MOST_NESTING = 32
_SCHEMAS: dict[str, Schema] = {
    CHAT_COMPLETIONS: ChatSchema(),
    COMPLETIONS: CompletionSchema(),
    EMBEDDINGS: EmbeddingSchema(),
}
_STREAM = "stream"


class BodyProblem(NamedTuple):
    """``param`` is the field of the line, such as `body.temperature`."""

    param: str
    message: str
    code: str


def check(endpoint: str, body: Mapping[str, Any]) -> list[BodyProblem]:
    """Everything that is wrong with a body for this endpoint; empty if it can be answered."""
    document = dict(body)
    if (unreadable := content_problem(document, max_nesting=MOST_NESTING)) is not None:
        return [_problem(unreadable.path or "", unreadable.message)]
    found = [_problem(field, message) for field, message in flat(_SCHEMAS[endpoint].validate(document), document)]
    if document.get(_STREAM) is True:
        found.append(_problem(_STREAM, "answers of a batch are not streamed; leave it out"))
    return found


def _problem(field: str, message: str) -> BodyProblem:
    return BodyProblem(f"body.{field}".rstrip("."), message, INVALID)
