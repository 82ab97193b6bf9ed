"""The completion report on the wire."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored


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
    weight_files = fields.List(fields.String())
