"""The completion report on the wire."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored, says


class BadputSchema(Schema):
    queue_seconds = fields.Float(**says("Waiting for devices again, after the first start"))
    start_seconds = fields.Float(**says("From a start to the first step: model, data, processes"))
    restart_seconds = fields.Float(**says("From the end of a failed attempt to the first step of the next"))
    checkpoint_seconds = fields.Float(**says("Standing still to save"))
    evaluate_seconds = fields.Float()
    export_seconds = fields.Float()
    detect_seconds = fields.Float(**says("From a fault to its being noticed"))
    recompute_seconds = fields.Float(**says("Steps that were done in vain"))


class GoodputSchema(Schema):
    wall_seconds = fields.Float(**says("From the first start to the end, without the time it was paused"))
    productive_seconds = fields.Float(**says("Steps that count"))
    ratio = fields.Float(**says("productive_seconds / wall_seconds"))
    badput = fields.Nested(BadputSchema, **says("All the rest of wall_seconds"))


class ReportSchema(Schema):
    job_id = fields.String()
    status = fields.String()
    output_model_name = fields.String(allow_none=True)
    model_hash = fields.String()
    model_uri = fields.String()
    final_metrics = AsStored({"type": "object", "additionalProperties": {"type": ["number", "string"]}})
    compute_time_ms = fields.Integer()
    gpu_time_ms = fields.Integer()
    average_gpu_util = fields.Float(allow_none=True)
    error_message = fields.String(allow_none=True)
    error_stack = fields.String(allow_none=True)
    steps = fields.Integer()
    tokens = fields.Integer()
    attempts = fields.Integer()
    goodput = fields.Nested(GoodputSchema, allow_none=True, **says("Where its time went; null if it never started"))
    weight_files = fields.List(fields.String())
