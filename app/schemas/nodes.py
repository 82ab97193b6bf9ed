"""Nodes and their devices on the wire."""

from marshmallow import Schema, fields

from app.schemas.documents import DocumentSchema
from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import AsStored, Flag, Moment, Texts, says

_LIMITS = {"type": "object", "additionalProperties": True, "description": "the table [jobs] of its node.toml"}
_WORDS = {"type": "array", "items": {"type": "string"}}


class NodeQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at", "name", "status")


class DeviceSchema(Schema):
    index = fields.Integer(attribute="device.index")
    type = fields.String(attribute="device.type")
    memory_mb = fields.Integer(attribute="device.memory_mb")
    simulated = fields.Boolean(attribute="device.simulated")
    link_group = fields.Integer(
        attribute="device.link_group",
        allow_none=True,
        **says("the same number for devices of the node that NVLink connects; null: with none, or unknown"),
    )
    in_use = fields.Boolean(**says("an attempt holds it, or a part of it"))
    share_in_use = fields.Float(**says("how much of it attempts hold, 0 to 1"))
    out_of_service_reason = fields.String(**says("why nobody is given it; empty while it is in service"))


class NodeSchema(Schema):
    name = fields.String(attribute="node.name")
    status = fields.String(attribute="node.state")
    quarantine_reason = fields.String(
        attribute="node.quarantine_reason", **says("why it was quarantined; empty once it is enabled")
    )
    labels = AsStored(_WORDS, attribute="node.all_labels")
    admin_labels = AsStored(
        {**_WORDS, "description": "those that an administrator gave it; the others stand in its node.toml"},
        attribute="node.admin_labels",
    )
    capabilities = AsStored(_WORDS, attribute="node.capabilities")
    limits = AsStored(_LIMITS, attribute="node.limits")
    arch = fields.String(attribute="node.arch", **says("Of its processor: x86_64, aarch64; empty: not known"))
    cpu_cores = fields.Integer(attribute="node.cpu_cores")
    ram_mb = fields.Integer(attribute="node.ram_mb")
    storage_mb = fields.Integer(attribute="node.storage_mb")
    devices = fields.List(fields.Nested(DeviceSchema))
    active_jobs = fields.Integer()
    reputation = fields.Float(**says("how well attempts ended there, 0 to 1"))
    sandbox = fields.String(
        attribute="node.sandbox",
        **says(
            "how jobs are kept apart there: bubblewrap, or process: not at all; missing or forbidden: it takes none"
        ),
    )
    version = fields.String(attribute="node.version")
    created_at = Moment(attribute="node.registered_at")
    last_seen_at = Moment(attribute="node.last_seen_at")


class FindingSchema(Schema):
    filter = fields.String()
    passed = fields.Boolean()
    reason = fields.String(**says("why the node does not pass; empty when it does"))


class PointsSchema(Schema):
    name = fields.String()
    meaning = fields.String()
    value = fields.Float()
    weight = fields.Float(**says("as the setting TRAINYARD_SCORE_… of this name says"))
    points = fields.Float(**says("value times weight"))


class NodeFitSchema(Schema):
    node = fields.String()
    job_id = fields.String()
    could_hold = fields.Boolean(**says("if nothing ran there"))
    starts_now = fields.Boolean(**says("nothing stands in the way: the planner may choose the node"))
    filters = fields.List(fields.Nested(FindingSchema))
    score = fields.Float(**says("of the nodes where it starts now, the job is given the one with the most"))
    scores = fields.List(fields.Nested(PointsSchema))


class ChangeNodeSchema(Schema):
    """What is left out stays."""

    labels = Texts(
        most=256,
        required=True,
        **says("all labels that the node has from now on; those of its node.toml must be among"),
    )


class DrainSchema(DocumentSchema):
    requeue = Flag(load_default=False, **says("also ask its running jobs to save and go back to the queue"))


class NoBodySchema(DocumentSchema):
    """Takes no fields."""


class DrainedNodeSchema(NodeSchema):
    requeued_jobs = fields.Integer(**says("how many were asked to save and go back to the queue"))
