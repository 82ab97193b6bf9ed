"""Nodes and their devices on the wire."""

from marshmallow import Schema, fields

from app.schemas.documents import DocumentSchema
from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import AsStored, Flag, Moment, says

_WORDS = {"type": "array", "items": {"type": "string"}}


class NodeQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at", "name", "status")


class DeviceSchema(Schema):
    index = fields.Integer(attribute="device.index")
    type = fields.String(attribute="device.type")
    memory_mb = fields.Integer(attribute="device.memory_mb")
    simulated = fields.Boolean(attribute="device.simulated")
    in_use = fields.Boolean()


class NodeSchema(Schema):
    name = fields.String(attribute="node.name")
    status = fields.String(attribute="node.state")
    labels = AsStored(_WORDS, attribute="node.labels")
    capabilities = AsStored(_WORDS, attribute="node.capabilities")
    cpu_cores = fields.Integer(attribute="node.cpu_cores")
    ram_mb = fields.Integer(attribute="node.ram_mb")
    storage_mb = fields.Integer(attribute="node.storage_mb")
    devices = fields.List(fields.Nested(DeviceSchema))
    sandbox = fields.String(attribute="node.sandbox")
    version = fields.String(attribute="node.version")
    created_at = Moment(attribute="node.registered_at")
    last_seen_at = Moment(attribute="node.last_seen_at")


class DrainSchema(DocumentSchema):
    requeue = Flag(load_default=False, **says("also ask its running jobs to save and go back to the queue"))


class NoBodySchema(DocumentSchema):
    """Takes no fields."""


class DrainedNodeSchema(NodeSchema):
    requeued_jobs = fields.Integer(**says("how many were asked to save and go back to the queue"))
