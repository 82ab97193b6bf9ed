"""Attempts of a job on the wire."""

from marshmallow import Schema, fields

from app.domain.units import WHOLE
from app.schemas.strict_fields import AsStored, Moment, says

_INTEGER = {"type": "integer"}
_INSTANCE = {
    "type": "object",
    "properties": {
        "role": {"type": "string"},
        "index": _INTEGER,
        "node": {"type": "string"},
        "part": _INTEGER | {"description": "The gang part that it belongs to, from 0"},
        "devices": {"type": "array", "items": _INTEGER},
        "first_rank": _INTEGER | {"description": "Number of its first rank among those of the job, as in logs"},
        "ranks": _INTEGER,
        "exit_code": {"type": ["integer", "null"], "description": "Missing until it has ended"},
        "cpu_seconds": {
            "type": "number",
            "description": "Processor time that it has used by now; missing until it was seen once",
        },
        "peak_memory_mb": {
            "type": "number",
            "description": "The most memory that it was seen to have at once by now, in MiB",
        },
    },
}


class AttemptSchema(Schema):
    number = fields.Integer()
    node_names = AsStored({"type": "array", "items": {"type": "string"}})
    device_indices = AsStored({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}})
    device_share = fields.Function(
        lambda attempt: attempt.device_share / WHOLE,
        metadata={"type": "number", "description": "Fraction of each device, 0 to 1"},
    )
    instances = AsStored(
        {"type": ["array", "null"], "items": _INSTANCE, "description": "The instances of a job with roles, by rank"}
    )
    started_at = Moment(allow_none=True)
    trained_at = Moment(allow_none=True, **says("When the ranks were ready for the first step"))
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
    recover_before_downgrade = fields.String(
        allow_none=True, **says("The cheaper recovery policy that was exhausted or unavailable")
    )
    lost_steps = fields.Integer(allow_none=True)
    detect_seconds = fields.Float(allow_none=True)
    recover_seconds = fields.Float(allow_none=True)


class AttemptsSchema(Schema):
    attempts = fields.List(fields.Nested(AttemptSchema))
