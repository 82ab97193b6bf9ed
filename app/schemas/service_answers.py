"""Services, their replicas and what was asked of them, as the API shows them."""

from typing import Any

from marshmallow import Schema, fields

from app.domain.spec.model import ResourceConfig, SchedulingConfig
from app.schemas.inference import ModelReferenceSchema
from app.schemas.services import (
    ReplicasSchema,
    RequestDefaultsSchema,
    ServedAdaptersSchema,
    ServiceLimitsSchema,
    ServiceSchedulingSchema,
)
from app.schemas.spec.resource_config import ResourceConfigSchema
from app.schemas.strict_fields import AsStored, Moment, SectionField, says

_NUMBER = {"type": ["number", "string"]}
_POINTS = {"type": "array", "items": {"type": "array"}}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


class CreatedServiceSchema(Schema):
    service_id = fields.String()
    name = fields.String()
    status = fields.String()
    message = fields.String()
    warnings = fields.List(fields.String(), **says("Fields without effect, each with the reason"))


class ServiceSchema(Schema):
    """A service: its document with its defaults, and what there is of it now."""

    service_id = fields.String(attribute="service.id")
    name = fields.String(attribute="service.name")
    project = fields.String(attribute="service.project")
    created_by = fields.String(attribute="service.created_by", **says("The id of the key that made it"))
    created_by_name = fields.String(
        **says("The name of that key; empty if it has none, `administrator` for a super admin's")
    )
    is_automatic = fields.Boolean(
        attribute="service.is_automatic", **says("Whether the first request for its model has made it")
    )
    model = SectionField(
        ModelReferenceSchema, attribute="document.model", **says("The model that answers, as it was named")
    )
    task = fields.String(attribute="document.task")
    adapters = fields.Nested(ServedAdaptersSchema, attribute="document.adapters")
    replicas = fields.Nested(ReplicasSchema, attribute="document.replicas")
    engine = fields.String(attribute="document.engine")
    limits = fields.Nested(ServiceLimitsSchema, attribute="document.limits")
    defaults = SectionField(RequestDefaultsSchema, attribute="document.defaults")
    log = fields.String(attribute="document.log")
    resource_config = SectionField(ResourceConfigSchema, attribute="document.resource_config")
    scheduling_config = SectionField(ServiceSchedulingSchema, attribute="document.scheduling_config")
    environment = AsStored(_TEXTS, attribute="document.environment")
    status = fields.String(attribute="service.status", **says("ACTIVE, PAUSED, ENDING or ENDED"))
    pending_reason = fields.String(**says("Why fewer copies answer than are wanted"))
    revision = fields.Integer(attribute="service.revision", **says("Rises when its copies must be replaced by others"))
    wanted = fields.Integer(attribute="service.wanted", **says("Copies, as the coordinator last decided"))
    answering = fields.Integer(**says("Copies that answer"))
    starting = fields.Integer(**says("Copies that do not answer yet"))
    in_flight = fields.Integer(attribute="load.in_flight", **says("Requests that copies are answering"))
    waiting = fields.Integer(attribute="load.waiting", **says("Requests that wait for a copy"))
    tokens_per_second = fields.Float(
        attribute="fleet.tokens_per_second", **says("Tokens of answers, of all copies together, as they reported last")
    )
    first_token_seconds = fields.Float(
        allow_none=True,
        **says("Within which 95 % of the streams of the last five minutes had their first token; null: no streams"),
    )
    adapters_loaded = fields.Integer(
        attribute="fleet.adapters_loaded", **says("Adapters in memory, counted in each copy that has them")
    )
    failures = fields.Integer(attribute="service.failures", **says("Of copies, since one has answered"))
    requested_at = Moment(attribute="service.requested_at", allow_none=True, **says("When it was last asked"))
    created_at = Moment(attribute="service.created_at")
    updated_at = Moment(attribute="service.updated_at")
    ended_at = Moment(attribute="service.ended_at", allow_none=True)
    version = fields.Integer(attribute="service.version")

    def get_attribute(self, obj: Any, attr: str, default: Any) -> Any:  # noqa: ANN401 – as marshmallow's
        """Sections of the document that are shared with jobs are shown as they are stored."""
        value = super().get_attribute(obj, attr, default)
        return value.to_json() if isinstance(value, ResourceConfig | SchedulingConfig) else value


class ReplicaSchema(Schema):
    job_id = fields.String(attribute="replica.job_id")
    number = fields.Integer(attribute="replica.number")
    revision = fields.Integer(attribute="replica.revision")
    status = fields.String(attribute="job.status")
    pending_reason = fields.String(attribute="job.pending_reason")
    is_draining = fields.Method(
        "_is_draining",
        metadata={"type": "boolean", "description": "Whether it answers what it has, and gets no new requests"},
    )
    answers = fields.Boolean()
    answers_since = Moment(attribute="replica.answers_since", allow_none=True)
    node_names = AsStored({"type": "array", "items": {"type": "string"}}, attribute="job.node_names")
    latest_metrics = AsStored({"type": "object", "additionalProperties": _NUMBER}, attribute="job.latest_metrics")
    error_type = fields.String(attribute="job.error_type", allow_none=True)
    error_message = fields.String(attribute="job.error_message", allow_none=True)
    created_at = Moment(attribute="job.created_at")
    finished_at = Moment(attribute="job.finished_at", allow_none=True)

    def _is_draining(self, shown: Any) -> bool:  # noqa: ANN401 – details of a replica
        return shown.replica.drain_requested_at is not None


class ServiceEventSchema(Schema):
    id = fields.String()
    at = Moment()
    type = fields.String()
    actor = fields.String()
    message = fields.String()
    data = AsStored({"type": "object"})


class LoadSchema(Schema):
    in_flight = fields.Integer(attribute="load.in_flight")
    waiting = fields.Integer(attribute="load.waiting")
    answering = fields.Integer(**says("Copies that answer"))


class ServiceMetricsSchema(Schema):
    now = fields.Nested(LoadSchema, **says("As gateways count now"))
    replicas = AsStored(
        {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": _POINTS},
            "description": "By the number of a copy that runs and the name of a metric: [step, at, value] of points",
        }
    )


class ModelUsageSchema(Schema):
    """Requests that were answered; what the list is not grouped by is null."""

    day = fields.Date(allow_none=True)
    model = fields.String(allow_none=True, **says("As requests name it"))
    key_id = fields.String(allow_none=True)
    project = fields.String()
    requests = fields.Integer()
    failures = fields.Integer(**says("Of them, those that were answered with an error"))
    prompt_tokens = fields.Integer()
    completion_tokens = fields.Integer()
