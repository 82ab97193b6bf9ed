"""The cluster summary on the wire."""

from marshmallow import Schema, fields

from app.schemas.queues import QueueSchema
from app.schemas.strict_fields import AsStored, Moment, says

_COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}
_WORDS = {"type": "object", "additionalProperties": {"type": "string"}}


class DeviceCountSchema(Schema):
    type = fields.String()
    total = fields.Integer()
    in_use = fields.Integer(**says("devices used by attempts, wholly or in part"))
    share_in_use = fields.Float(**says("the sum of the used fractions"))
    free = fields.Integer(**says("unused devices on ready nodes"))
    out_of_service = fields.Integer(**says("devices held by an unkillable process"))


class BeatSchema(Schema):
    name = fields.String()
    host = fields.String()
    last_seen_at = Moment()
    alive = fields.Boolean(attribute="is_alive")


class ClusterSchema(Schema):
    nodes = AsStored({**_COUNTS, "description": "number of nodes by state"})
    devices = fields.List(fields.Nested(DeviceCountSchema))
    jobs = AsStored({**_COUNTS, "description": "number of jobs visible to the key, by state"})
    queues = fields.List(fields.Nested(QueueSchema))
    planner = fields.Nested(BeatSchema, allow_none=True, **says("the coordinator that is the elected planner"))
    coordinators = fields.List(fields.Nested(BeatSchema))
    parts = AsStored({**_WORDS, "description": "database, broker and coordinator: ok, or the problem"})
