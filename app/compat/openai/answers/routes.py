"""Routes of requests for answers, which a gateway answers."""

from typing import Any

from flask import Blueprint, Response
from marshmallow import Schema

from app.compat.openai.answers.answer_schemas import (
    ChatAnswerSchema,
    CompletionAnswerSchema,
    EmbeddingAnswerSchema,
    RerankAnswerSchema,
)
from app.compat.openai.answers.handing_on import AnswerBody, answered
from app.compat.openai.answers.schemas import ChatSchema, CompletionSchema, EmbeddingSchema, RerankSchema
from app.http.operation import operation
from app.security.permissions import Permission

blueprint = Blueprint("openai_answers", __name__)


def _asks(body: type[Schema]) -> dict[str, Any]:
    return {"permission": Permission.INFER, "body": body, "reader": AnswerBody(body()), "remembers": False}


@blueprint.post("/chat/completions")
@operation("Ask for the next message of a chat", answer=ChatAnswerSchema, media="json or events", **_asks(ChatSchema))
def chat_completions(body: dict[str, Any]) -> Response:
    del body  # the gateway gets it as it was sent
    return answered("/v1/chat/completions")


@blueprint.post("/completions")
@operation(
    "Ask for the continuation of texts",
    answer=CompletionAnswerSchema,
    media="json or events",
    **_asks(CompletionSchema),
)
def completions(body: dict[str, Any]) -> Response:
    del body
    return answered("/v1/completions")


@blueprint.post("/embeddings")
@operation("Ask for vectors of texts", answer=EmbeddingAnswerSchema, **_asks(EmbeddingSchema))
def embeddings(body: dict[str, Any]) -> Response:
    del body
    return answered("/v1/embeddings")


@blueprint.post("/rerank")
@operation("Sort documents by how well they answer a query", answer=RerankAnswerSchema, **_asks(RerankSchema))
def rerank(body: dict[str, Any]) -> Response:
    """As Cohere's and Jina's; OpenAI has none."""
    del body
    return answered("/v1/rerank")
