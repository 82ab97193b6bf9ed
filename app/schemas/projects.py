"""Projects on the wire."""

from marshmallow import Schema, fields

from app.domain.names import NAME, NAME_RULE
from app.schemas.documents import DocumentSchema
from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import SOMETIMES, Matching, Moment, Number, Text, Whole, says

MOST = 1_000_000


class ProjectQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at", "name")


class DeviceQuotaSchema(Schema):
    """What is left out stays; null takes a limit away."""

    deserved = Whole(0, MOST, allow_none=True, **says("its own whenever it asks for them, and lent while it does not"))
    limit = Whole(0, MOST, allow_none=True, **says("never more at a time; null: any number"))
    over_quota_weight = Number(
        0, 1000, allow_none=True, **says("its part of what others leave, by weight; 0: nothing, null: 1")
    )


class QuotaSchema(Schema):
    """What is left out stays; null takes a limit away."""

    gpus = fields.Nested(DeviceQuotaSchema)
    cpu_slots = fields.Nested(DeviceQuotaSchema)
    max_running_jobs = Whole(0, MOST, allow_none=True, **says("null: any number"))
    max_waiting_jobs = Whole(
        0, MOST, allow_none=True, **says("with so many waiting, submitting is refused with 429; null: any number")
    )
    gpu_hours_per_month = Number(
        0, 1e9, allow_none=True, **says("used up, nothing is submitted or starts until the next month (UTC)")
    )
    storage_gb = Number(
        0, 1e9, allow_none=True,
        **says("of checkpoints and results, GB of 10⁹ bytes; with so much kept, nothing is submitted or starts"),
    )  # fmt: skip


class CreateProjectSchema(DocumentSchema):
    name = Matching(NAME, NAME_RULE, required=True)
    description = Text(longest=255, load_default="")
    quota = fields.Nested(QuotaSchema)


class ChangeProjectSchema(DocumentSchema):
    description = Text(longest=255)
    quota = fields.Nested(QuotaSchema)


class UsageSchema(Schema):
    gpus = fields.Float(attribute="devices.cuda")
    cpu_slots = fields.Float(attribute="devices.cpu")
    running_jobs = fields.Integer()
    waiting_jobs = fields.Integer()
    gpu_hours = fields.Float(**says("of this month"))
    storage_bytes = fields.Integer()


class ProjectSchema(Schema):
    name = fields.String()
    description = fields.String()
    quota = fields.Nested(QuotaSchema, attribute="limits")
    usage = fields.Nested(UsageSchema, metadata={"description": "only where one project is read", SOMETIMES: True})
    created_at = Moment()


class ProjectShareSchema(Schema):
    project = fields.String()
    kind = fields.String()
    used = fields.Float()
    deserved = fields.Integer(attribute="quota.deserved")
    borrowed = fields.Float()
    limit = fields.Integer(attribute="quota.limit")
    over_quota_weight = fields.Float(attribute="quota.over_quota_weight")
    running_jobs = fields.Integer()
    waiting_jobs = fields.Integer()
