"""Jobs on the wire: the submitted document, the job resource, and the bodies of control requests."""

import re
from typing import Any, ClassVar

from marshmallow import Schema, ValidationError, fields, post_load, pre_load, validates_schema

from app.domain.lifecycle.states import JobState
from app.domain.names import MOST_LABELS
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.inference import ENGINES, KINDS, TYPES
from app.domain.spec.model import JobDocument
from app.schemas.documents import DocumentSchema, JobPartSchema
from app.schemas.memory import MemoryEstimateSchema
from app.schemas.queries import ListQuerySchema, OrderBy, QueryFlag, QueryMoment, QueryTexts, one_of
from app.schemas.spec.data_config import DataConfigSchema
from app.schemas.spec.interactive_config import InteractiveConfigSchema
from app.schemas.spec.output_config import OutputConfigSchema
from app.schemas.spec.resource_config import NewResourceConfigSchema, ResourceConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.schemas.spec.tasks import new_role_list, role_list
from app.schemas.spec.tracking import tracker_list
from app.schemas.spec.training_config import (
    FRAMEWORKS,
    IS_CUSTOM,
    TRAINING_TYPES,
    StoredTrainingConfigSchema,
    TrainingConfigSchema,
    missing_unless_custom,
    required_unless_custom,
)
from app.schemas.strict_fields import (
    NAME,
    SOMETIMES,
    AsStored,
    Flag,
    Matching,
    Moment,
    SectionField,
    Text,
    TextMap,
    Whole,
    says,
)
from app.services.jobs.details import JobDetails

LABEL_KEY = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_NAME_RULE = "must be 1 to 128 letters, digits, dots, dashes, underscores and spaces, not spaces alone"
_METRICS = {"type": "object", "additionalProperties": {"type": ["number", "string"]}}
# What an empty section loads as. Shared by all documents, which only read it: loading it anew takes a tenth of the time
# of a document.
_NO_DATA = DataConfigSchema().load({"sources": []})
_NO_OUTPUT, _NO_SCHEDULING = OutputConfigSchema().load({}), SchedulingConfigSchema().load({})


def label_map(*, most: int = MOST_LABELS, **more: Any) -> TextMap:
    rule = "must be 1 to 63 of letters, digits and ._/-"
    return TextMap(keys=LABEL_KEY, rule=rule, most=most, longest=255, **more)


def display_name(meaning: str, **more: Any) -> Matching:
    return Matching(re.compile(rf"(?! *$){NAME.pattern}"), _NAME_RULE, **more, **says(meaning))


def refuse_other_kinds(document: object) -> None:
    """Raise ValidationError for a document of a job that trains nothing."""
    if not isinstance(document, dict):
        return
    way_out = (
        "is of jobs that train nothing: submit batches and features with POST /v1/inference, evaluations with POST "
        "/v1/evaluations, and services, which make their replicas, with POST /v1/services; leave it out for a training"
    )
    for name in ("kind", "inference"):
        if document.get(name) is not None:
            raise ValidationError(way_out, field_name=name)
    training = document.get("training_config")
    if isinstance(training, dict) and training.get("training_type") in TYPES.values():
        raise ValidationError({"training_config": {"training_type": [way_out.partition("; ")[0]]}})


class SubmitJobSchema(JobPartSchema):
    conditions: ClassVar[dict[str, Any]] = required_unless_custom(
        {"required": ["training_config"], "properties": {"training_config": IS_CUSTOM}}, "data_config"
    )
    name = display_name("A display name; need not be unique", required=True)
    labels = label_map(load_default=dict, **says("Keys and values to filter jobs by"))
    training_config = SectionField(TrainingConfigSchema, required=True)
    data_config = SectionField(DataConfigSchema, **says("Framework CUSTOM does not need it: default no sources"))
    resource_config = SectionField(ResourceConfigSchema, required=True)
    output_config = SectionField(OutputConfigSchema, load_default=lambda: _NO_OUTPUT)
    scheduling_config = SectionField(SchedulingConfigSchema, load_default=lambda: _NO_SCHEDULING)
    tracking = tracker_list()
    interactive_config = SectionField(
        InteractiveConfigSchema, **says("Ports, readiness, a notebook, and what a failure leaves")
    )
    tasks = role_list()

    @pre_load
    def _trains(self, values: object, **_: Any) -> object:
        """Other kinds of job have documents and requests of their own."""
        refuse_other_kinds(values)
        return values

    @validates_schema(skip_on_field_errors=False, pass_original=True)
    def _has_data(self, values: dict[str, Any], original: object, **_: Any) -> None:
        given = original if isinstance(original, dict) else {}
        training = given.get("training_config")
        framework = training.get("framework") if isinstance(training, dict) else None
        if given.get("data_config") is None:
            missing_unless_custom(values, framework, "data_config")

    @post_load
    def _typed(self, values: dict[str, Any], **_: Any) -> JobDocument:
        return JobDocument.from_json({"data_config": _NO_DATA, **values})


class SubmitQuerySchema(Schema):
    dry_run = QueryFlag(load_default=False, **says("Validate without submitting; returns 200 with a placement plan"))
    project = Text(longest=63)


class SubmittedSchema(Schema):
    job_id = fields.String()
    status = fields.String()
    message = fields.String()
    estimated_wait_seconds = fields.Float(allow_none=True)
    warnings = fields.List(fields.String(), **says("Fields without effect, each with the reason"))


class CandidateSchema(Schema):
    name = fields.String()
    fits_now = fields.Boolean()
    reason = fields.String(**says("Why the job does not fit now; empty if it does"))


class PlannedInstanceSchema(Schema):
    role = fields.String()
    index = fields.Integer()
    node = fields.String()
    devices = AsStored({"type": "array", "items": {"type": "integer"}})


class PlanSchema(Schema):
    project = fields.String(attribute="checked.project")
    queue = fields.String(attribute="checked.spec.document.scheduling_config.queue")
    priority = fields.Integer(attribute="checked.spec.document.scheduling_config.priority")
    queue_position = fields.Integer(**says("Queue position if submitted now, from 1"))
    estimated_wait_seconds = fields.Float(attribute="checked.wait_seconds", allow_none=True)
    candidate_nodes = fields.List(fields.Nested(CandidateSchema), **says("Nodes that could run the job, free or not"))
    instances = fields.List(
        fields.Nested(PlannedInstanceSchema),
        **says("Where the instances of a job with roles would start now; empty if they would wait, or there are none"),
    )
    device_type = fields.String(attribute="checked.request.device_kind", **says("cuda or cpu; auto is resolved"))
    gpu_type = fields.String(
        attribute="checked.request.gpu_type", **says("As reported by nodes, alternatives joined by `or`; empty: any")
    )
    devices = fields.Integer(attribute="checked.request.device_count")
    training_type = fields.String(attribute="checked.spec.document.training_config.training_type")
    framework = fields.String(attribute="checked.spec.document.training_config.framework.type")
    max_retries = fields.Integer(attribute="checked.spec.document.training_config.max_retries")
    max_runtime_seconds = fields.Integer(
        attribute="checked.spec.document.scheduling_config.max_runtime_seconds", allow_none=True
    )
    resumes_from = fields.String(allow_none=True, **says("The checkpoint to start from"))
    memory = fields.Nested(
        MemoryEstimateSchema, attribute="checked.fit", allow_none=True, **says("null for jobs that train nothing")
    )


class DryRunSchema(Schema):
    """``valid`` is always true: invalid documents are rejected as at submission."""

    valid = fields.Boolean()
    plan = fields.Nested(PlanSchema)
    warnings = fields.List(fields.String())


class ChangeJobSchema(DocumentSchema):
    """At least one field is required."""

    priority = Whole(0, 10, **says("0 to 10; 10 is the most urgent"))
    labels = label_map(**says("Replaces all labels"))
    preemptible = Flag(
        **says("Whether higher-priority jobs of the project, and projects reclaiming borrowed devices, may preempt it")
    )


class DeleteQuerySchema(Schema):
    artifacts = QueryFlag(load_default=False, **says("Also delete its files: checkpoints, model, logs"))


class CancelSchema(DocumentSchema):
    reason = Text(longest=1000, load_default="")


class PreemptSchema(DocumentSchema):
    reason = Text(longest=1000, load_default="", **says("Recorded in the job's history"))


class PauseSchema(DocumentSchema):
    save_checkpoint = Flag(
        load_default=True,
        **says("Save a checkpoint first; false stops at once and loses the steps since the last checkpoint"),
    )
    force = Flag(load_default=False, **says("Stop even if the checkpoint can't be saved"))


class ResumeSchema(DocumentSchema):
    checkpoint_id = Text(longest=128, load_default="", **says("A checkpoint of this job; default the newest"))
    from_best = Flag(load_default=False, **says("Continue from its best checkpoint"))


class RetrySchema(DocumentSchema):
    checkpoint_id = Text(
        longest=128,
        load_default="",
        **says(
            "A checkpoint of the project with the same model, type and data; default the original job's newest, if any"
        ),
    )
    from_start = Flag(load_default=False, **says("Start without any checkpoint"))
    modify_resources = Flag(
        load_default=False, **says("Whether to apply new_resource_config and new_tasks; they are ignored otherwise")
    )
    new_resource_config = SectionField(NewResourceConfigSchema, **says("Fields to override"))
    new_tasks = new_role_list()


class JobQuerySchema(ListQuerySchema):
    """``labels.<key>=<value>`` filters are collected beforehand and passed as ``labels``."""

    order_by = OrderBy("created_at", "priority", "name", "status")
    status = QueryTexts(one_of(tuple(JobState)))
    queue = Text(longest=63)
    project = Text(longest=63)
    name = Text(longest=128)
    kind = one_of(KINDS)
    training_type = one_of((*TRAINING_TYPES, CUSTOM, *TYPES.values()))
    framework = one_of((*FRAMEWORKS, *ENGINES))
    created_after = QueryMoment()
    created_before = QueryMoment()
    finished_after = QueryMoment()
    finished_before = QueryMoment()
    parent_job_id = Text(longest=64)
    sweep_id = Text(longest=64)
    created_by = Text(longest=64, **says("The id of the key that submitted it; `me` is the caller's own"))
    handle = Text(
        longest=128,
        **says("A job's id, its whole name, or, where none is named so, the end of its id, 4 characters or more"),
    )
    labels = fields.List(fields.Tuple((fields.String(), fields.String())), load_default=list)


class JobPortSchema(Schema):
    name = fields.String()
    port = fields.Integer(**says("0: that of the notebook, wherever it listens"))
    protocol = fields.String()


class JobSchema(Schema):
    """The job resource: the submitted document with masked secrets, and the job's status and results."""

    job_id = fields.String(attribute="job.id")
    kind = fields.String(attribute="job.kind", **says("training, batch, features, evaluation or replica"))
    name = fields.String(attribute="job.name")
    labels = AsStored({"type": "object", "additionalProperties": {"type": "string"}}, attribute="job.labels")
    training_config = SectionField(StoredTrainingConfigSchema, attribute="stored.training_config")
    data_config = SectionField(DataConfigSchema, attribute="stored.data_config")
    resource_config = SectionField(ResourceConfigSchema, attribute="stored.resource_config")
    output_config = SectionField(OutputConfigSchema, attribute="stored.output_config")
    scheduling_config = SectionField(SchedulingConfigSchema, attribute="stored.scheduling_config")
    # Jobs of earlier versions are stored without it.
    tracking = tracker_list(attribute="stored.tracking", dump_default=list)
    interactive_config = SectionField(InteractiveConfigSchema, attribute="stored.interactive_config", dump_default=dict)
    tasks = AsStored(
        {
            "type": "array",
            "items": {"type": "object"},
            "description": "The roles of a job that has some",
            SOMETIMES: True,
        },
        attribute="stored.tasks",
    )
    project = fields.String(attribute="job.project")
    created_by = fields.String(attribute="job.created_by", **says("The id of the key that submitted it"))
    created_by_name = fields.String(
        **says("The name of that key; empty if it has none, `administrator` for a super admin's")
    )
    status = fields.String(attribute="job.status")
    status_reason = fields.String(attribute="job.status_reason")
    requested = fields.String(allow_none=True)
    pending_reason = fields.String()
    queue_position = fields.Integer(allow_none=True)
    estimated_start_at = Moment(allow_none=True)
    progress = fields.Float(attribute="job.progress")
    current_step = fields.Integer(attribute="job.current_step")
    total_steps = fields.Integer(attribute="job.total_steps", allow_none=True)
    current_epoch = fields.Float(attribute="job.current_epoch")
    total_epochs = fields.Float(attribute="job.total_epochs", allow_none=True)
    eta_seconds = fields.Float(attribute="job.eta_seconds", allow_none=True)
    elapsed_seconds = fields.Float()
    latest_metrics = AsStored(_METRICS, attribute="job.latest_metrics")
    latest_checkpoint_id = fields.String(attribute="job.latest_checkpoint_id", allow_none=True)
    best_checkpoint_id = fields.String(attribute="job.best_checkpoint_id", allow_none=True)
    attempt = fields.Integer(attribute="job.attempt")
    node_names = AsStored({"type": "array", "items": {"type": "string"}}, attribute="job.node_names")
    parent_job_id = fields.String(attribute="job.parent_job_id", allow_none=True)
    sweep_id = fields.String(attribute="job.sweep_id", allow_none=True, **says("Of a trial: its sweep"))
    child_job_ids = fields.List(fields.String())
    error_type = fields.String(attribute="job.error_type", allow_none=True)
    error_message = fields.String(attribute="job.error_message", allow_none=True)
    created_at = Moment(attribute="job.created_at")
    queued_at = Moment(attribute="job.queued_at", allow_none=True)
    started_at = Moment(attribute="job.started_at", allow_none=True)
    finished_at = Moment(attribute="job.finished_at", allow_none=True)
    version = fields.Integer(attribute="job.version")
    ready = fields.Boolean(
        allow_none=True,
        **says("By its readiness probe; null: it has none, or none has answered, or the job does not run"),
    )
    kept_until = Moment(
        allow_none=True, **says("Its script has failed, and sandbox and devices stay until then; null: not so")
    )
    ports = fields.List(fields.Nested(JobPortSchema), **says("What people may open, GET …/ports says where"))
    evaluations = fields.List(
        fields.String(),
        allow_none=True,
        **says("The ids of at most 200 evaluations of its model; null unless one training is read by its id"),
    )
    memory_estimate = fields.Nested(
        MemoryEstimateSchema, allow_none=True, **says("null unless one unfinished job that trains is read by its id")
    )

    def get_attribute(self, obj: JobDetails, attr: str, default: object) -> object:
        """Attribute access without marshmallow's item lookup at each dot: serializes lists 20 % faster."""
        owner, dot, name = attr.partition(".")
        if not dot:
            return getattr(obj, attr)
        return getattr(obj.job, name) if owner == "job" else obj.stored.get(name, default)
