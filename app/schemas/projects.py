"""Projects on the wire."""

import re

from marshmallow import Schema, fields

from app.domain.administration import (
    AUTO_SERVICES,
    CLAIM_RIGHTS,
    IMAGE_DIGESTS,
    LONGEST_DESCRIPTION,
    MOST_DEMANDS,
    MOST_OF_QUOTA,
)
from app.domain.interactive import SWITCHES
from app.domain.names import NAME, NAME_RULE
from app.domain.spec.locations.egress import MOST_SERVICES, SERVICE, SERVICE_RULE
from app.domain.spec.locations.images import MOST_SOURCES, SOURCE, SOURCE_RULE
from app.schemas.documents import DocumentSchema, RequestSchema
from app.schemas.queries import ListQuerySchema, OrderBy, QueryTexts, one_of
from app.schemas.strict_fields import SOMETIMES, Choice, Matching, Moment, Number, Text, Texts, Whole, says
from app.services.queues.gpu_hours import GROUPS

_MONTH = re.compile("[0-9]{4}-(0[1-9]|1[0-2])")
_MONTH_RULE = "must be a month such as 2026-05"
_SESSIONS = says(
    "shells, commands, forwarded connections and ports of its jobs: allowed, recorded (what shells and commands show "
    "is kept), or off"
)
_CLAIMS = says("volume claims of its jobs: create (a mount may create a missing one) or use (existing ones only)")
_AUTO_SERVICES = says(
    "whether the first request for a model without a service makes one: on, off, or default (as the gateways' settings)"
)
_IMAGE_SOURCES = says(
    "registries and parts of them whose images its jobs may use, and local for images of the storage roots: the whole "
    "list; empty: all that the installation allows"
)
_IMAGE_DIGESTS = says("whether its jobs name images of registries with their digest: optional or required")
_DEMANDS = says(
    "capabilities that nodes of its jobs must have, such as sandbox:full: the whole list; also for jobs that wait"
)
_EGRESS = says("services that jobs with resource_config.network gate may connect to: the whole list")


class ProjectQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "name")


class DeviceQuotaSchema(Schema):
    """Omitted fields are unchanged; null removes a limit."""

    deserved = Whole(
        0,
        MOST_OF_QUOTA,
        allow_none=True,
        **says("guaranteed devices; other projects may borrow them while they are unused"),
    )
    limit = Whole(0, MOST_OF_QUOTA, allow_none=True, **says("maximum in use at a time; null: unlimited"))
    over_quota_weight = Number(
        0, 1000, allow_none=True, **says("weight of its share of unused devices beyond deserved; 0: none, null: 1")
    )


class QuotaSchema(Schema):
    """Omitted fields are unchanged; null removes a limit."""

    gpus = fields.Nested(DeviceQuotaSchema)
    cpu_slots = fields.Nested(DeviceQuotaSchema)
    max_running_jobs = Whole(0, MOST_OF_QUOTA, allow_none=True, **says("null: unlimited"))
    max_waiting_jobs = Whole(
        0, MOST_OF_QUOTA, allow_none=True, **says("further submissions are rejected with 429; null: unlimited")
    )
    gpu_hours_per_month = Number(
        0,
        1e9,
        allow_none=True,
        **says("once used up, jobs are neither accepted nor started until the next month (UTC)"),
    )
    storage_gb = Number(
        0,
        1e9,
        allow_none=True,
        **says(
            "checkpoints, results and files in GB (10⁹ bytes); once reached, jobs are neither accepted nor started, "
            "and files not stored"
        ),
    )


class CreateProjectSchema(DocumentSchema):
    name = Matching(NAME, NAME_RULE, required=True)
    description = Text(longest=LONGEST_DESCRIPTION, load_default="")
    quota = fields.Nested(QuotaSchema)
    egress = Texts(most=MOST_SERVICES, form=SERVICE, rule=SERVICE_RULE, **_EGRESS)
    sessions = Choice(SWITCHES, **_SESSIONS)
    claims = Choice(CLAIM_RIGHTS, **_CLAIMS)
    auto_services = Choice(AUTO_SERVICES, **_AUTO_SERVICES)
    image_sources = Texts(most=MOST_SOURCES, form=SOURCE, rule=SOURCE_RULE, **_IMAGE_SOURCES)
    image_digests = Choice(IMAGE_DIGESTS, **_IMAGE_DIGESTS)
    required_capabilities = Texts(most=MOST_DEMANDS, **_DEMANDS)


class ChangeProjectSchema(DocumentSchema):
    description = Text(longest=LONGEST_DESCRIPTION)
    quota = fields.Nested(QuotaSchema)
    egress = Texts(most=MOST_SERVICES, form=SERVICE, rule=SERVICE_RULE, **_EGRESS)
    sessions = Choice(SWITCHES, **_SESSIONS)
    claims = Choice(CLAIM_RIGHTS, **_CLAIMS)
    auto_services = Choice(AUTO_SERVICES, **_AUTO_SERVICES)
    image_sources = Texts(most=MOST_SOURCES, form=SOURCE, rule=SOURCE_RULE, **_IMAGE_SOURCES)
    image_digests = Choice(IMAGE_DIGESTS, **_IMAGE_DIGESTS)
    required_capabilities = Texts(most=MOST_DEMANDS, **_DEMANDS)


class ChangeEgressSchema(DocumentSchema):
    """Other services are unchanged."""

    add = Texts(most=MOST_SERVICES, form=SERVICE, rule=SERVICE_RULE, load_default=[])
    remove = Texts(most=MOST_SERVICES, form=SERVICE, rule=SERVICE_RULE, load_default=[])


class UsageSchema(Schema):
    gpus = fields.Float(attribute="devices.cuda")
    cpu_slots = fields.Float(attribute="devices.cpu")
    running_jobs = fields.Integer()
    waiting_jobs = fields.Integer()
    gpu_hours = fields.Float(**says("in the current month"))
    storage_bytes = fields.Integer()


class ProjectSchema(Schema):
    name = fields.String()
    description = fields.String()
    quota = fields.Nested(QuotaSchema, attribute="limits")
    usage = fields.Nested(
        UsageSchema, metadata={"description": "only in the response for a single project", SOMETIMES: True}
    )
    egress = fields.List(fields.String())
    sessions = fields.String(**_SESSIONS)
    claims = fields.String(**_CLAIMS)
    auto_services = fields.String(**_AUTO_SERVICES)
    image_sources = fields.List(fields.String(), **_IMAGE_SOURCES)
    image_digests = fields.String(**_IMAGE_DIGESTS)
    required_capabilities = fields.List(fields.String(), **_DEMANDS)
    created_at = Moment()


class ProjectShareSchema(Schema):
    project = fields.String()
    kind = fields.String(**says("gpus or cpu_slots"))
    used = fields.Float()
    deserved = fields.Integer(attribute="quota.deserved", allow_none=True)
    borrowed = fields.Float()
    limit = fields.Integer(attribute="quota.limit", allow_none=True)
    over_quota_weight = fields.Float(attribute="quota.over_quota_weight")
    running_jobs = fields.Integer()
    waiting_jobs = fields.Integer()


class SharesSchema(Schema):
    shares = fields.List(fields.Nested(ProjectShareSchema), **says("of each kind the next to be served first"))


class GpuHoursQuerySchema(RequestSchema):
    by = QueryTexts(one_of(GROUPS), load_default=list(GROUPS), **says("Sums are of each; default project,month"))
    since = Matching(_MONTH, _MONTH_RULE, **says("The first month, in UTC"))
    until = Matching(_MONTH, _MONTH_RULE, **says("The last month, in UTC"))
    project = Text(longest=63)


class GpuHoursSchema(Schema):
    project = fields.String(allow_none=True)
    month = fields.String(allow_none=True, **says("in UTC"))
    gpu_hours = fields.Float(**says("of ended and running attempts"))


class GpuHoursListSchema(Schema):
    usage = fields.List(fields.Nested(GpuHoursSchema), **says("the newest month first"))
