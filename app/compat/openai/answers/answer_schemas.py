"""Answers of engines, as the description has them; gateways pass them on as they are."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import SOMETIMES

_OBJECT = {"type": "object"}


class UsageSchema(Schema):
    prompt_tokens = fields.Integer()
    completion_tokens = fields.Integer(metadata={SOMETIMES: True})
    total_tokens = fields.Integer()


class ChatAnswerSchema(Schema):
    id = fields.String()
    object = fields.Constant("chat.completion")
    created = fields.Integer()
    model = fields.String()
    system_fingerprint = fields.String()
    choices = fields.List(fields.Raw(metadata=_OBJECT))
    usage = fields.Nested(UsageSchema)


class CompletionAnswerSchema(ChatAnswerSchema):
    object = fields.Constant("text_completion")


class EmbeddingAnswerSchema(Schema):
    object = fields.Constant("list")
    data = fields.List(fields.Raw(metadata=_OBJECT))
    model = fields.String()
    usage = fields.Nested(UsageSchema)


class RerankAnswerSchema(Schema):
    id = fields.String()
    model = fields.String()
    results = fields.List(fields.Raw(metadata=_OBJECT))
    usage = fields.Nested(UsageSchema)
