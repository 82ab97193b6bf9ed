"""Types of the server's answers about shares, placements and registered models, part of trainyard.records."""

from typing import Any, NotRequired, TypedDict


class GpuHours(TypedDict):
    """Sums; what they are not by is None. ``month`` as 2026-11."""

    project: str | None
    month: str | None
    gpu_hours: float


class DeviceUse(TypedDict):
    """None: the device does not report it. ``utilization`` in percent."""

    index: int
    utilization: float | None
    memory_used_mb: int | None


class NodeSample(TypedDict):
    """What a node and its devices did in the minute ``at``."""

    at: str
    cpu_percent: float | None
    ram_used_mb: int | None
    devices: list[DeviceUse]


class Share(TypedDict):
    """What one project uses of its quota for one kind of device: ``gpus`` or ``cpu_slots``."""

    project: str
    kind: str
    used: float
    deserved: int | None
    borrowed: float
    limit: int | None
    over_quota_weight: float
    running_jobs: int
    waiting_jobs: int


class NodeFit(TypedDict):
    node: str
    job_id: str
    could_hold: bool
    starts_now: bool
    filters: list[dict[str, Any]]
    score: float
    scores: list[dict[str, Any]]


class Placement(TypedDict):
    """``nodes``: the best first."""

    job: dict[str, Any]
    nodes: list[NodeFit]


class DrainedNode(TypedDict):
    """The node, as ``records.Node``; ``requeued_jobs``: number of jobs asked to save and return to the queue."""

    name: str
    status: str
    requeued_jobs: int


class PutBack(TypedDict):
    """``devices``: number of devices returned to service."""

    name: str
    devices: int


class RegisteredModel(TypedDict):
    name: str
    kind: str
    project: str | None
    location: str | None
    base: str | None
    job_id: str | None
    created_at: str
    removed_at: str | None


class Project(TypedDict):
    """``usage`` is only in the answer for a single project."""

    name: str
    description: str
    quota: dict[str, Any]
    usage: NotRequired[dict[str, Any]]
    egress: list[str]
    sessions: str
    claims: str
    auto_services: str
    image_sources: list[str]
    image_digests: str
    required_capabilities: list[str]
    created_at: str


# Aliases, as in trainyard.records.
Shares = list[Share]
GpuHoursList = list[GpuHours]
RegisteredModels = list[RegisteredModel]
