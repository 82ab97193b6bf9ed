"""Comparisons of jobs on the wire; non-finite values are the strings NaN, Infinity or -Infinity."""

from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import Schema, ValidationError, fields, validate

from app.domain.downsampling import FEWEST
from app.domain.json_numbers import json_number
from app.domain.units import WHOLE
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import AsStored, Choice, Moment, Text, Whole, says
from app.services.jobs.comparison import MOST_METRICS, CurvePoint

FEWEST_JOBS, MOST_JOBS = 2, 20
AXES = ("step", "seconds", "tokens")
_NUMBER = {"type": ["number", "string"]}
_VALUES = {"type": "array", "items": {"type": ["number", "string", "null"]}}
_POINT = {"type": "object", "required": ["x", "value"], "properties": {"x": {"type": "number"}, "value": _NUMBER}}
_CURVES = {
    "type": "object",
    "description": "Of each metric one list of points per job",
    "additionalProperties": {"type": "array", "items": {"type": "array", "items": _POINT}},
}


def _refuse_duplicates(values: Sequence[str]) -> None:
    again = {place: ["is named twice"] for place, value in enumerate(values) if value in values[:place]}
    if again:
        raise ValidationError(again)


def _names(item: Text, low: int, most: int, what: str, meaning: str, **more: Any) -> fields.List[str]:
    length = validate.Length(low, most, error=f"must be {low} to {most} {what}")
    return fields.List(item, validate=[length, _refuse_duplicates], **more, **says(meaning, uniqueItems=True))


class CompareJobsSchema(DocumentSchema):
    jobs = _names(Text(longest=64, shortest=1), FEWEST_JOBS, MOST_JOBS, "ids of jobs", "Ids of jobs", required=True)
    metrics = _names(
        Text(longest=128, shortest=1),
        0,
        MOST_METRICS,
        "names of metrics",
        f"Names of metrics; default the {MOST_METRICS} that most of the jobs have",
        load_default=list,
    )
    by = Choice(
        AXES, load_default="step", **says("The axis of curves: the step, seconds since the job's start, or tokens")
    )
    max_points = Whole(FEWEST, 1000, load_default=200, **says("Points of each curve at most"))


class ComparedDevicesSchema(Schema):
    type = fields.String(attribute="device_type")
    count = fields.Function(
        lambda attempt: sum(map(len, attempt.device_indices)), metadata={"type": "integer", "minimum": 0}
    )
    share = fields.Function(
        lambda attempt: attempt.device_share / WHOLE,
        metadata={"type": "number", "description": "Fraction of each device, 0 to 1"},
    )
    node_names = AsStored({"type": "array", "items": {"type": "string"}})


class ComparedJobSchema(Schema):
    job_id = fields.String(attribute="job.id")
    name = fields.String(attribute="job.name")
    project = fields.String(attribute="job.project")
    status = fields.String(attribute="job.status")
    training_type = fields.String(attribute="job.training_type")
    framework = fields.String(attribute="job.framework")
    devices = fields.Nested(
        ComparedDevicesSchema, attribute="attempt", allow_none=True, **says("Of the newest attempt; null before one")
    )
    versions = AsStored(
        {
            "type": "object",
            "description": "Of Trainyard on the nodes of the newest attempt, as they report it now",
            "additionalProperties": {"type": "string"},
        }
    )
    model_hash = fields.String(allow_none=True, **says("Of the weights, as in the report; null without"))
    steps = fields.Integer(attribute="job.current_step")
    tokens = fields.Integer(attribute="job.tokens")
    attempts = fields.Integer(attribute="job.attempt")
    elapsed_seconds = fields.Float(attribute="details.elapsed_seconds", **says("Of all attempts"))
    gpu_seconds = fields.Float(attribute="job.gpu_seconds", **says("Devices times duration, of ended attempts"))
    error_type = fields.String(attribute="job.error_type", allow_none=True)
    created_at = Moment(attribute="job.created_at")
    started_at = Moment(attribute="job.started_at", allow_none=True)
    finished_at = Moment(attribute="job.finished_at", allow_none=True)


class DocumentDifferenceSchema(Schema):
    field = fields.String(**says("A dotted path: data_config.sources.0.path"))
    values = AsStored({"type": "array", "description": "One per job, null where absent; secrets are masked"})


class MetricValues(fields.Field[Sequence[float | None]]):
    """Numbers, one per job; null where there is none."""

    def __init__(self, meaning: str) -> None:
        super().__init__(metadata={**_VALUES, "description": meaning})

    def _serialize(self, value: Sequence[float | None] | None, *_: Any, **__: Any) -> list[Any]:
        return [None if number is None else json_number(number) for number in value or ()]


class CurvesField(fields.Field[Mapping[str, list[list[CurvePoint]]]]):
    """Metric → one list of points per job."""

    def _serialize(self, value: Mapping[str, list[list[CurvePoint]]] | None, *_: Any, **__: Any) -> dict[str, Any]:
        return {
            name: [[{"x": point.x, "value": json_number(point.value)} for point in points] for points in of_jobs]
            for name, of_jobs in (value or {}).items()
        }


class ComparedMetricSchema(Schema):
    goal = fields.String(
        allow_none=True, **says("minimize or maximize, by the name or the jobs' metric_for_best_model; null: unknown")
    )
    final = MetricValues("Final values of ended jobs, newest ones of others")
    final_difference = MetricValues("Final values minus that of the first job")
    best = MetricValues("The best of all steps; null without a goal")
    best_difference = MetricValues("Best values minus that of the first job")


class ComparisonSchema(Schema):
    """Lists of values have one per job, in the order of ``jobs``."""

    jobs = fields.List(fields.Nested(ComparedJobSchema))
    differences = fields.List(fields.Nested(DocumentDifferenceSchema))
    metrics = fields.Dict(keys=fields.String(), values=fields.Nested(ComparedMetricSchema))
    left_out = fields.List(fields.String(), **says(f"Metrics beyond the first {MOST_METRICS}; name them to see them"))
    curves = CurvesField(metadata=_CURVES)
