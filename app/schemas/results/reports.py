"""The completion report on the wire."""

from marshmallow import Schema, fields

from app.schemas.evaluations import PASSED, RESULTS, VERDICTS, VerdictSchema
from app.schemas.strict_fields import AsStored, says


class BadputSchema(Schema):
    queue_seconds = fields.Float(**says("Waiting for devices after the first start"))
    start_seconds = fields.Float(**says("From an attempt's start to its first step: model, data, processes"))
    restart_seconds = fields.Float(**says("From the end of a failed attempt to the first step of the next"))
    checkpoint_seconds = fields.Float(**says("Training blocked by saving"))
    evaluate_seconds = fields.Float()
    export_seconds = fields.Float()
    detect_seconds = fields.Float(**says("From a fault to its detection"))
    recompute_seconds = fields.Float(**says("Steps that had to be repeated"))


class GoodputSchema(Schema):
    wall_seconds = fields.Float(**says("From the first start to the end, without paused time"))
    productive_seconds = fields.Float(**says("Steps that contributed to the result"))
    ratio = fields.Float(**says("productive_seconds / wall_seconds"))
    badput = fields.Nested(BadputSchema, **says("The remainder of wall_seconds by cause"))


class ReportedEvaluationSchema(Schema):
    evaluation_id = fields.String(attribute="job.id")
    name = fields.String(attribute="job.name")
    planned = fields.Boolean(attribute="section.planned", **says("Whether the document of the job plans it"))
    checkpoint_id = fields.String(attribute="section.model.checkpoint_id", allow_none=True)
    step = fields.Integer(
        attribute="job.evaluated_step", allow_none=True, **says("Of the checkpoint; null: the result")
    )
    status = fields.String(attribute="job.status")
    results = AsStored(RESULTS)
    passed = fields.Boolean(allow_none=True, **says(PASSED))
    verdicts = fields.List(fields.Nested(VerdictSchema), **says(VERDICTS))


class TrainingReportSchema(Schema):
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
    goodput = fields.Nested(
        GoodputSchema, allow_none=True, **says("How the time was spent; null if the job never started")
    )
    weight_files = fields.List(fields.String())
    forked_from = fields.Integer(
        allow_none=True, **says("Of a sweep's trial that began with another trial's checkpoint: the number of that one")
    )
    steps_saved = fields.Integer(**says("Steps that the other trial had made for it"))


class ReportSchema(TrainingReportSchema):
    evaluations = fields.List(
        fields.Nested(ReportedEvaluationSchema),
        **says("What was measured of the result, then of its checkpoints, the newest first; at most 200"),
    )
    passed = fields.Boolean(
        allow_none=True,
        **says(
            "Whether the result meets all that training_config.evaluations requires of it; null without requirements, "
            "and until those evaluations have completed"
        ),
    )
