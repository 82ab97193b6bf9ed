"""Running records of a job on the wire."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored, Moment


class AttemptSchema(Schema):
    number = fields.Integer()
    node_names = AsStored({"type": "array", "items": {"type": "string"}})
    device_indices = AsStored({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}})
    started_at = Moment(allow_none=True)
    ended_at = Moment(allow_none=True)
    start_type = fields.String()
    end_reason = fields.String(allow_none=True)
    end_related_task = fields.String(allow_none=True)
    end_recover = fields.String(allow_none=True)
    start_step = fields.Integer()
    end_step = fields.Integer(allow_none=True)
    exit_code = fields.Integer(allow_none=True)
    cause = fields.String(allow_none=True)
    policy = fields.String(allow_none=True)
    lost_steps = fields.Integer(allow_none=True)
    detect_seconds = fields.Float(allow_none=True)
    recover_seconds = fields.Float(allow_none=True)


class AttemptsSchema(Schema):
    attempts = fields.List(fields.Nested(AttemptSchema))
