"""The cluster at a glance, on the wire."""

from marshmallow import Schema, fields

from app.schemas.queues import QueueSchema
from app.schemas.strict_fields import AsStored, Moment, says

_COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}
_WORDS = {"type": "object", "additionalProperties": {"type": "string"}}


class DeviceCountSchema(Schema):
    type = fields.String()
    total = fields.Integer()
    in_use = fields.Integer(**says("held by attempts, all of it or a part"))
    share_in_use = fields.Float(**says("the sum of what is held of each"))
    free = fields.Integer(**says("held by nobody, on a node that is ready"))
    out_of_service = fields.Integer(**says("held by a process that can't be ended"))


class BeatSchema(Schema):
    name = fields.String()
    host = fields.String()
    last_seen_at = Moment()
    alive = fields.Boolean(attribute="is_alive")


class ClusterSchema(Schema):
    nodes = AsStored({**_COUNTS, "description": "how many by state"})
    devices = fields.List(fields.Nested(DeviceCountSchema))
    jobs = AsStored({**_COUNTS, "description": "how many that the key sees, by state"})
    queues = fields.List(fields.Nested(QueueSchema))
    planner = fields.Nested(BeatSchema, allow_none=True, **says("the coordinator that plans"))
    coordinators = fields.List(fields.Nested(BeatSchema))
    parts = AsStored({**_WORDS, "description": "database, broker and coordinator: ok, or what is wrong"})
