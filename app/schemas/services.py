"""Services on the wire: the document of one, changes to it, and the queries of requests about them."""

import re
from datetime import date
from typing import Any

from marshmallow import Schema, ValidationError, fields, missing, post_load

from app.domain.downsampling import FEWEST
from app.domain.lifecycle.states import JobState
from app.domain.names import NAME, NAME_RULE
from app.domain.serving.document import (
    AUTO,
    ENGINES,
    NONE,
    NOT_LOGGED,
    PROJECT,
    TASKS,
    Replicas,
    ServedAdapters,
    ServiceDocument,
    ServiceLimits,
)
from app.domain.serving.states import ServiceState
from app.domain.spec.inference import GENERATE, InferenceTask
from app.domain.spec.rules.inference import HOTTEST, LARGEST_PENALTY, MOST_ANSWER_TOKENS, MOST_TOP_K
from app.schemas.documents import DocumentSchema
from app.schemas.inference import ModelReferenceSchema
from app.schemas.queries import ListQuerySchema, OrderBy, QueryTexts, QueryWhole, one_of
from app.schemas.spec.resource_config import ResourceConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.schemas.spec.training_config import environment
from app.schemas.strict_fields import Choice, Matching, Number, SectionField, Text, Whole, says
from app.services.serving.creation import NewService
from app.services.serving.usage import GROUPS

MOST_REPLICAS = 1000
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTH = 30 * 24 * 3600


class ReplicasSchema(DocumentSchema):
    min = Whole(
        0,
        MOST_REPLICAS,
        **says("Copies that always run; 0: the last one ends after idle_seconds", default=Replicas.min),
    )
    max = Whole(1, MOST_REPLICAS, **says("Most copies", default=Replicas.max))
    target_in_flight = Whole(
        1, 10_000, **says("Requests of one copy, above which another one is started", default=Replicas.target_in_flight)
    )
    idle_seconds = Whole(
        1, _MONTH, **says("Seconds without need after which a copy above min ends", default=Replicas.idle_seconds)
    )


class ServedAdaptersSchema(DocumentSchema):
    max_loaded = Whole(
        1,
        10_000,
        **says("Adapters in memory; the least recently used one gives way", default=ServedAdapters.max_loaded),
    )
    max_rank = Whole(1, 4096, **says("Adapters of a higher rank are refused", default=ServedAdapters.max_rank))

    class Meta:
        include = {  # noqa: RUF012 – as marshmallow reads it; the name is a keyword of Python
            "from": Choice(
                (PROJECT, NONE),
                attribute="source",
                **says(
                    f"{PROJECT}: adapters that jobs of the project trained on this model, loaded when they are asked "
                    f"for; {NONE}: the model alone",
                    default=ServedAdapters.source,
                ),
            )
        }


class ServiceLimitsSchema(DocumentSchema):
    max_context = Whole(2, 2**24, **says("Most tokens of a prompt with its answer; default what the model can read"))
    max_output_tokens = Whole(
        1,
        MOST_ANSWER_TOKENS,
        **says("Most tokens of an answer, also of a request without a limit", default=ServiceLimits.max_output_tokens),
    )
    max_waiting = Whole(
        0,
        100_000,
        **says("Requests that wait for a copy at most; more are refused with 429", default=ServiceLimits.max_waiting),
    )
    cold_start_seconds = Whole(
        0,
        3600,
        **says(
            "Longest wait of a request for a copy; then it is refused with 503",
            default=ServiceLimits.cold_start_seconds,
        ),
    )


def _default(name: str, meaning: str) -> dict[str, Any]:
    return says(meaning, default=getattr(InferenceTask, name))


class RequestDefaultsSchema(DocumentSchema):
    """Values of requests that leave them out."""

    temperature = Number(0.0, HOTTEST, **_default("temperature", "0 to 2; 0: the likeliest token"))
    top_p = Number(0.0, 1.0, **_default("top_p", "Sample from the likeliest tokens with this probability together"))
    top_k = Whole(0, MOST_TOP_K, **_default("top_k", "Sample from so many tokens; 0: all"))
    min_p = Number(0.0, 1.0, **_default("min_p", "Sample from tokens with this share of the likeliest's probability"))
    repetition_penalty = Number(
        0.0, LARGEST_PENALTY, **_default("repetition_penalty", "Above 1: repeated tokens become less likely")
    )


class ServiceSchedulingSchema(SchedulingConfigSchema):
    """Of replicas, which have no end of their own; those above ``min`` are always preemptible."""

    class Meta:
        exclude = ("max_runtime_seconds", "on_preemption")


_NO_RESOURCES, _NO_SCHEDULING = ResourceConfigSchema().load({}), ServiceSchedulingSchema().load({})
_REPLICAS = says("How many copies run")
_ADAPTERS = says("Which adapters may be asked for, as model SERVICE/JOB")
_LIMITS = says("Of requests")
_DEFAULTS = says("Sampling of requests that say nothing else")


_LOG = re.compile(r"none|sample:(?:1|0\.(?=0*[1-9])[0-9]{1,6})")
_LOG_RULE = "must be none, or sample: with a share such as sample:0.01"
_LOGGED = says("sample:0.01: so many of the requests are stored with their answers, as files of the project")


class CreateServiceSchema(DocumentSchema):
    name = Matching(NAME, NAME_RULE, required=True, **says("What requests call it as model; unique in the project"))
    model = SectionField(ModelReferenceSchema, required=True, **says("The model that answers"))
    task = Choice(
        TASKS, load_default=GENERATE, **says("generate: chat and completions; embed: embeddings; score: rerank")
    )
    adapters = SectionField(ServedAdaptersSchema, load_default=dict, **_ADAPTERS)
    replicas = SectionField(ReplicasSchema, load_default=dict, **_REPLICAS)
    engine = Choice(ENGINES, load_default=AUTO, **says("What runs the model; auto: what the node offers"))
    limits = SectionField(ServiceLimitsSchema, load_default=dict, **_LIMITS)
    defaults = SectionField(RequestDefaultsSchema, load_default=dict, **_DEFAULTS)
    resource_config = SectionField(
        ResourceConfigSchema, load_default=lambda: _NO_RESOURCES, **says("Devices of each copy, on one node")
    )
    scheduling_config = SectionField(
        ServiceSchedulingSchema,
        load_default=lambda: _NO_SCHEDULING,
        **says("Queue, priority and labels of its copies; preemptible: also those that always run"),
    )
    environment = environment()
    log = Matching(_LOG, _LOG_RULE, load_default=NOT_LOGGED, **_LOGGED)

    @post_load
    def _typed(self, values: dict[str, Any], **_: Any) -> NewService:
        model = values.pop("model")
        return NewService(document=ServiceDocument.from_json(values), model=model)


class ChangeServiceSchema(DocumentSchema):
    """At least one field is required; of replicas, adapters, limits and defaults only what is given changes.

    New copies replace the old ones, without an answer lost, when anything but replicas and log changes.
    """

    replicas = SectionField(ReplicasSchema, **_REPLICAS)
    model = SectionField(ModelReferenceSchema, **says("Another model for the same name"))
    adapters = SectionField(ServedAdaptersSchema, **_ADAPTERS)
    limits = SectionField(ServiceLimitsSchema, **_LIMITS)
    defaults = SectionField(RequestDefaultsSchema, **_DEFAULTS)
    resource_config = SectionField(ResourceConfigSchema, **says("Devices of each copy, in place of all that it has"))
    scheduling_config = SectionField(ServiceSchedulingSchema, **says("In place of all that it has"))
    environment = environment(load_default=missing)
    log = Matching(_LOG, _LOG_RULE, **_LOGGED)


class ServiceQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "name", "status")
    status = QueryTexts(one_of(tuple(ServiceState)), **says("Default: all but ENDED"))
    project = Text(longest=63)
    name = Text(longest=63)


class ReplicaQuerySchema(ListQuerySchema):
    order_by = OrderBy("number", default="-number")
    status = QueryTexts(one_of(tuple(JobState)))


class ServiceMetricsQuerySchema(Schema):
    names = QueryTexts(fields.String(), load_default=list)
    max_points = QueryWhole(FEWEST, 10_000, load_default=1000)


class ServiceLogQuerySchema(Schema):
    tail = QueryWhole(0, 10_000)
    replica = QueryWhole(0, 2**31 - 1, **says("Number of the replica; default the newest one that has started"))


class QueryDay(fields.Date):
    """A day such as 2026-05-17."""

    def _deserialize(self, value: object, *_: Any, **__: Any) -> date:
        try:
            if not isinstance(value, str) or _DAY.fullmatch(value) is None:
                raise ValueError
            return date.fromisoformat(value)
        except ValueError as error:
            raise ValidationError("must be a day such as 2026-05-17") from error


class UsageQuerySchema(ListQuerySchema):
    order_by = OrderBy("day", default="-day")
    group = QueryTexts(one_of(GROUPS), load_default=list, **says("Sums are of each; without it of the project"))
    since = QueryDay(**says("The first day, in UTC"))
    until = QueryDay(**says("The last day, in UTC"))
    project = Text(longest=63)
