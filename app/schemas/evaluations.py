"""Evaluations on the wire: what is to be measured, what was, and comparisons."""

from collections.abc import Sequence
from typing import Any

from marshmallow import Schema, ValidationError, fields, post_load, validate

from app.domain.errors import InvalidRequest
from app.domain.evaluations.documents import EvaluationOptions
from app.domain.names import MOST_LABELS
from app.domain.spec.inference import Requirement
from app.domain.spec.model import DataConfig, PlannedBenchmark, ResourceConfig, SchedulingConfig
from app.schemas.documents import DocumentSchema
from app.schemas.inference import InferenceQuerySchema, ModelReferenceSchema
from app.schemas.jobs import display_name, label_map
from app.schemas.spec.benchmarks import benchmark_list, requirements, seed
from app.schemas.spec.data_config import PreprocessSchema
from app.schemas.spec.resource_config import ResourceConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.schemas.strict_fields import AsStored, Moment, SectionField, Text, Whole, says
from app.services.evaluations.comparing import FEWEST, MOST
from app.services.evaluations.submission import EvaluationRequest
from app.services.inference.models import WantedModel

_NUMBER: dict[str, Any] = {"type": ["number", "string", "null"]}
_METRIC = {"type": "object", "properties": {"value": _NUMBER, "stderr": _NUMBER}}
_RESULT = {
    "type": "object",
    "properties": {
        "metrics": {"type": "object", "additionalProperties": _METRIC},
        "n": {"type": "integer"},
        "seconds": {"type": ["number", "null"]},
        "tokens": {"type": "integer"},
    },
}
RESULTS: dict[str, Any] = {
    "type": "object",
    "description": "By name of a benchmark: metrics with value and stderr, n samples, seconds, tokens; empty until it "
    "has completed",
    "additionalProperties": _RESULT,
}
PASSED = "Whether every requirement is met; null without any, and until it has completed"
VERDICTS = "Each requirement with the value and whether it passed; empty until it has completed"
_MODEL = ModelReferenceSchema()
# The model in ScaiMind's form of a request.
_FLAT = {"job_id": "job_id", "model_uri": "model_uri", "checkpoint_id": "checkpoint"}


class EvaluationDataSchema(DocumentSchema):
    preprocess = SectionField(PreprocessSchema, **says("How records become tokens; default as of the model's job"))
    max_seq_length = Whole(
        1,
        2**24,
        **says("Maximum tokens of a record; default that of the model's job", default=DataConfig.max_seq_length),
    )
    seed = Whole(0, 2**32 - 1, **says("Random seed of the samples of datasets", default=DataConfig.seed))


class CreateEvaluationSchema(DocumentSchema):
    name = display_name("A display name; default that of the model")
    labels = label_map(
        most=MOST_LABELS - 1, load_default=dict, **says("Keys and values to filter by; type is evaluation by default")
    )
    model = SectionField(ModelReferenceSchema, **says("The model that is measured"))
    job_id = Text(longest=64, **says("Instead of model: model.job_id"))
    model_uri = Text(**says("Instead of model: model.model_uri"))
    checkpoint_id = Text(longest=128, **says("Instead of model: model.checkpoint, of job_id where both are given"))
    benchmarks = benchmark_list()
    require = requirements()
    data_config = SectionField(
        EvaluationDataSchema, **says("How records are read; default as the training of the model did")
    )
    resource_config = SectionField(ResourceConfigSchema, **says("Devices; default one"))
    scheduling_config = SectionField(SchedulingConfigSchema, **says("Queue, priority, preemption, time limits"))
    seed = seed("Random seed of sampled answers and of resampling")

    @post_load
    def _typed(self, values: dict[str, Any], **_: Any) -> EvaluationRequest:
        data, resources = values.get("data_config"), values.get("resource_config")
        scheduling = values.get("scheduling_config")
        options = EvaluationOptions(
            name=values.get("name", ""),
            labels=values["labels"],
            data=DataConfig.from_json(data) if data is not None else None,
            resources=ResourceConfig.from_json(resources) if resources is not None else None,
            scheduling=SchedulingConfig.from_json(scheduling) if scheduling is not None else None,
            seed=values["seed"],
            require=tuple(Requirement.from_json(each) for each in values.get("require", ())),
        )
        benchmarks = tuple(PlannedBenchmark.from_json(each) for each in values["benchmarks"])
        return EvaluationRequest(model=_model_of(values), benchmarks=benchmarks, options=options)


def _model_of(values: dict[str, Any]) -> WantedModel:
    """Raises InvalidRequest unless the request names a model in one of both forms."""
    flat = {ours: values[theirs] for theirs, ours in _FLAT.items() if values.get(theirs)}
    model: WantedModel | None = values.get("model")
    if model is None and not flat:
        raise InvalidRequest("model is required: job_id, model_uri, or checkpoint", field="model")
    if model is not None and flat:
        raise InvalidRequest(f"model: leave {', '.join(name for name in _FLAT if values.get(name))} out", field="model")
    found: WantedModel = _MODEL.load(flat) if model is None else model
    return found


class CreatedEvaluationSchema(Schema):
    evaluation_id = fields.String(**says("That of the job that measures"))
    status = fields.String()
    message = fields.String()
    estimated_wait_seconds = fields.Float(allow_none=True)
    warnings = fields.List(fields.String(), **says("Fields without effect, each with the reason"))


class EvaluationQuerySchema(InferenceQuerySchema):
    class Meta:
        exclude = ("kind",)

    job_id = Text(longest=64, **says("The job whose model was measured"))


class VerdictSchema(Schema):
    """A requirement, and whether it was met."""

    metric = fields.String()
    min = fields.Float(allow_none=True)
    max = fields.Float(allow_none=True)
    baseline = fields.String(allow_none=True)
    margin = fields.Float()
    value = fields.Raw(metadata={**_NUMBER, "description": "What was measured; null where it is missing"})
    baseline_value = fields.Raw(metadata={**_NUMBER, "description": "What baseline has measured"})
    passed = fields.Boolean()


class EvaluationAnswerSchema(Schema):
    """An evaluation, with what it has measured."""

    evaluation_id = fields.String(attribute="job.id")
    name = fields.String(attribute="job.name")
    labels = AsStored({"type": "object", "additionalProperties": {"type": "string"}}, attribute="job.labels")
    project = fields.String(attribute="job.project")
    created_by = fields.String(attribute="job.created_by", **says("The id of the key that made it"))
    created_by_name = fields.String(
        attribute="details.created_by_name",
        **says("The name of that key; empty if it has none, `administrator` for a super admin's"),
    )
    job_id = fields.String(attribute="job.evaluated_job_id", allow_none=True, **says("The job that made the model"))
    model = SectionField(ModelReferenceSchema)
    checkpoint_id = fields.String(attribute="section.model.checkpoint_id", allow_none=True)
    step = fields.Integer(
        attribute="job.evaluated_step", allow_none=True, **says("Of the checkpoint; null: the result")
    )
    benchmarks = AsStored({"type": "array", "items": {"type": "object"}})
    require = AsStored({"type": "array", "items": {"type": "object"}})
    data_config = SectionField(EvaluationDataSchema, **says("How records are read"))
    seed = fields.Integer(attribute="section.seed")
    resource_config = SectionField(ResourceConfigSchema)
    scheduling_config = SectionField(SchedulingConfigSchema, **says("Queue, priority, preemption, time limits"))
    status = fields.String(attribute="job.status")
    status_reason = fields.String(attribute="job.status_reason")
    pending_reason = fields.String(attribute="details.pending_reason")
    progress = fields.Float(attribute="job.progress")
    eta_seconds = fields.Float(attribute="job.eta_seconds", allow_none=True)
    elapsed_seconds = fields.Float(attribute="details.elapsed_seconds")
    results = AsStored(RESULTS)
    passed = fields.Boolean(allow_none=True, **says(PASSED))
    verdicts = fields.List(fields.Nested(VerdictSchema), **says(VERDICTS))
    error_type = fields.String(attribute="job.error_type", allow_none=True)
    error_message = fields.String(attribute="job.error_message", allow_none=True)
    parent_job_id = fields.String(attribute="job.parent_job_id", allow_none=True)
    created_at = Moment(attribute="job.created_at")
    started_at = Moment(attribute="job.started_at", allow_none=True)
    finished_at = Moment(attribute="job.finished_at", allow_none=True)
    version = fields.Integer(attribute="job.version")


def _refuse_duplicates(ids: Sequence[str]) -> None:
    again = {place: ["is named twice"] for place, each in enumerate(ids) if each in ids[:place]}
    if again:
        raise ValidationError(again)


class CompareEvaluationsSchema(DocumentSchema):
    ids = fields.List(
        Text(longest=64, shortest=1),
        required=True,
        validate=[
            validate.Length(FEWEST, MOST, error=f"must be {FEWEST} to {MOST} ids of evaluations"),
            _refuse_duplicates,
        ],
        **says("Completed evaluations", uniqueItems=True),
    )
    baseline = Text(
        longest=64, shortest=1, **says("The one of ids that the others are compared with; default the first")
    )


class ChangedSampleSchema(Schema):
    index = fields.Integer(**says("Number of the record in its dataset, from 0"))
    value_before = fields.Raw(data_key="from", metadata=_NUMBER)
    value_after = fields.Raw(data_key="to", metadata=_NUMBER)


class EvaluatedDifferenceSchema(Schema):
    id = fields.String()
    difference = fields.Raw(metadata={**_NUMBER, "description": "Its value minus the baseline's, on the same samples"})
    interval = fields.List(
        fields.Raw(metadata=_NUMBER), allow_none=True, **says("95 %, by a paired bootstrap; null for one sample")
    )
    p_value = fields.Float(allow_none=True, **says("McNemar's exact p; null for what is not right or wrong"))
    n = fields.Integer(**says("Samples that both have measured"))
    changes = fields.Integer(**says("Number of samples that changed sides"))
    changed = fields.List(fields.Nested(ChangedSampleSchema), **says("The first of them"))


class EvaluatedMetricSchema(Schema):
    benchmark = fields.String()
    metric = fields.String()
    values = AsStored({"type": "object", "description": "By id", "additionalProperties": _NUMBER})
    differences = fields.List(fields.Nested(EvaluatedDifferenceSchema))
    notes = fields.List(fields.String(), **says("What makes the evaluations less comparable"))


class EvaluationComparisonSchema(Schema):
    baseline = fields.String()
    comparisons = fields.List(fields.Nested(EvaluatedMetricSchema))
