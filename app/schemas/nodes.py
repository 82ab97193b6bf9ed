"""Nodes and their devices on the wire."""

from marshmallow import Schema, fields

from app.schemas.documents import DocumentSchema, RequestSchema
from app.schemas.queries import ListQuerySchema, OrderBy, QueryWhole
from app.schemas.strict_fields import AsStored, Flag, Moment, Texts, says
from app.services.nodes.device_usage import MINUTES_OF_A_DAY

_LIMITS = {"type": "object", "additionalProperties": True, "description": "the table [jobs] of node.toml"}
_WORDS = {"type": "array", "items": {"type": "string"}}


class NodeQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "name", "status")


class DeviceSchema(Schema):
    index = fields.Integer(attribute="device.index")
    type = fields.String(attribute="device.type")
    memory_mb = fields.Integer(attribute="device.memory_mb")
    simulated = fields.Boolean(attribute="device.simulated")
    link_group = fields.Integer(
        attribute="device.link_group",
        allow_none=True,
        **says("equal for devices of the node connected by NVLink; null: not connected, or unknown"),
    )
    in_use = fields.Boolean(**says("whether an attempt uses it, wholly or in part"))
    share_in_use = fields.Float(**says("fraction used by attempts, 0 to 1"))
    out_of_service_reason = fields.String(**says("why it is not allocated; empty while it is in service"))


class NodeSchema(Schema):
    name = fields.String(attribute="node.name")
    status = fields.String(attribute="node.state")
    quarantine_reason = fields.String(
        attribute="node.quarantine_reason", **says("why it is quarantined; empty otherwise")
    )
    labels = AsStored(_WORDS, attribute="node.all_labels")
    admin_labels = AsStored(
        {**_WORDS, "description": "labels set by an administrator; the others come from node.toml"},
        attribute="node.admin_labels",
    )
    capabilities = AsStored(_WORDS, attribute="node.capabilities")
    limits = AsStored(_LIMITS, attribute="node.limits")
    arch = fields.String(attribute="node.arch", **says("CPU architecture: x86_64, aarch64; empty: unknown"))
    cpu_cores = fields.Integer(attribute="node.cpu_cores")
    ram_mb = fields.Integer(attribute="node.ram_mb")
    storage_mb = fields.Integer(attribute="node.storage_mb")
    devices = fields.List(fields.Nested(DeviceSchema))
    active_jobs = fields.Integer()
    reputation = fields.Float(**says("success rate of past attempts, 0 to 1"))
    sandbox = fields.String(
        attribute="node.sandbox",
        **says(
            "how jobs are isolated: bubblewrap, landlock (files alone), process (not at all); else it accepts no jobs"
        ),
    )
    version = fields.String(attribute="node.version")
    created_at = Moment(attribute="node.registered_at")
    last_seen_at = Moment(attribute="node.last_seen_at")


class FindingSchema(Schema):
    filter = fields.String()
    passed = fields.Boolean()
    reason = fields.String(**says("why the node fails the filter; empty if it passes"))


class PointsSchema(Schema):
    name = fields.String()
    meaning = fields.String()
    value = fields.Float()
    weight = fields.Float(**says("from the setting TRAINYARD_SCORE_… of this name"))
    points = fields.Float(**says("value times weight"))


class NodeFitSchema(Schema):
    node = fields.String()
    job_id = fields.String()
    could_hold = fields.Boolean(**says("whether the node could run the job if it were empty"))
    starts_now = fields.Boolean(**says("whether the node passes every filter now"))
    filters = fields.List(fields.Nested(FindingSchema))
    score = fields.Float(**says("the planner places the job on the eligible node with the highest score"))
    scores = fields.List(fields.Nested(PointsSchema))


class ChangeNodeSchema(Schema):
    """Omitted fields are unchanged."""

    labels = Texts(most=256, required=True, **says("the complete set of labels; it must include those of node.toml"))


class ChangeLabelsSchema(DocumentSchema):
    """Other labels are unchanged."""

    add = Texts(most=256, load_default=[])
    remove = Texts(most=256, load_default=[], **says("labels that an administrator has set"))


class PutBackSchema(Schema):
    name = fields.String()
    devices = fields.Integer(**says("number of devices returned to service"))


class PlacedJobSchema(Schema):
    job_id = fields.String(attribute="job.id")
    status = fields.String(attribute="job.status")
    project = fields.String(attribute="job.project")
    queue_position = fields.Integer(allow_none=True)
    estimated_start_at = Moment(allow_none=True)
    pending_reason = fields.String(**says("empty unless it waits"))
    queue = fields.String(attribute="job.queue")
    priority = fields.Integer(attribute="job.priority")


class PlacementSchema(Schema):
    job = fields.Nested(PlacedJobSchema)
    nodes = fields.List(fields.Nested(NodeFitSchema), **says("the best first"))


class DrainSchema(DocumentSchema):
    requeue = Flag(load_default=False, **says("also save and requeue its running jobs"))


class NoBodySchema(DocumentSchema):
    """Takes no fields."""


class DrainedNodeSchema(NodeSchema):
    requeued_jobs = fields.Integer(**says("number of jobs requested to save and requeue"))


class NodeUsageQuerySchema(RequestSchema):
    minutes = QueryWhole(1, MINUTES_OF_A_DAY, load_default=60, **says("How far back, at most a day"))


class DeviceUseSchema(Schema):
    index = fields.Integer()
    utilization = fields.Float(allow_none=True, **says("in percent; null: the device does not report it"))
    memory_used_mb = fields.Integer(allow_none=True)


class NodeSampleSchema(Schema):
    at = Moment(**says("the minute"))
    cpu_percent = fields.Float(allow_none=True, **says("of all cores of the machine"))
    ram_used_mb = fields.Integer(allow_none=True)
    devices = fields.List(fields.Nested(DeviceUseSchema), **says("without CPU slots and simulated devices"))


class NodeUsageSchema(Schema):
    name = fields.String()
    samples = fields.List(fields.Nested(NodeSampleSchema), **says("one a minute, the oldest first"))
