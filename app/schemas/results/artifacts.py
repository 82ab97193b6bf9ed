"""Artifacts of a job on the wire."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import Choice
from app.services.attempts.artifacts import KINDS, MODEL


class ArtifactQuerySchema(Schema):
    kind = Choice(KINDS, load_default=MODEL)


class ArtifactSchema(Schema):
    path = fields.String()
    size_bytes = fields.Integer()
    sha256 = fields.String()


class TensorboardSchema(Schema):
    url = fields.String()
    token = fields.String(metadata={"description": "Access token for `URL?token=TOKEN`, valid for one day"})


class ArtifactsSchema(Schema):
    artifacts = fields.List(fields.Nested(ArtifactSchema))
