"""Checkpoints on the wire."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored, Moment


class CheckpointSchema(Schema):
    checkpoint_id = fields.String(attribute="id")
    step = fields.Integer()
    epoch = fields.Float()
    created_at = Moment()
    size_bytes = fields.Integer()
    sha256 = fields.String()
    world_size = fields.Integer()
    metrics = AsStored({"type": "object", "additionalProperties": {"type": ["number", "string"]}})
    is_best = fields.Boolean()
    # Only complete checkpoints are recorded.
    is_complete = fields.Constant(True)
    uri = fields.String()


class CheckpointsSchema(Schema):
    checkpoints = fields.List(fields.Nested(CheckpointSchema))
