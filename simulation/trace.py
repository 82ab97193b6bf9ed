"""Traces: jobs with arrival times and runtimes, and the cluster to replay them on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.domain.scheduling.fair_share import ProjectQuota
from app.domain.scheduling.resources import NodeCapacity, Request


@dataclass(frozen=True, kw_only=True)
class InstanceFailure:
    """An instance of a role fails once, after so many seconds of the job's work."""

    role: str
    after_seconds: float


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job of a trace. ``seconds``: total work on its devices, regardless of interruptions."""

    job_id: str
    arrives_at: float  # seconds, by the clock of the trace
    seconds: float
    request: Request
    project: str = "default"
    queue: str = "default"
    priority: int = 5
    is_preemptible: bool = False
    min_runtime_seconds: float = 0.0
    max_runtime_seconds: float | None = None  # limit set by its owner, in seconds of work
    # Of a job whose request has roles:
    restart_alone: frozenset[str] = frozenset()  # roles with restart task; an instance of another ends the attempt
    failures: tuple[InstanceFailure, ...] = ()  # in their order


@dataclass(frozen=True, kw_only=True)
class ReplayCluster:
    """The cluster of a replay: empty nodes, project quotas and queue weights."""

    nodes: Sequence[NodeCapacity]
    quotas: Mapping[str, ProjectQuota] = field(default_factory=lambda: MappingProxyType({}))
    queue_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def devices(self) -> dict[str, int]:
        """Device type → number of devices."""
        found: dict[str, int] = {}
        for node in self.nodes:
            for device in node.devices:
                found[device.type] = found.get(device.type, 0) + 1
        return dict(sorted(found.items()))

    def capacity(self, kind: str) -> int:
        """Number of devices for a kind of request."""
        return sum(count for type_, count in self.devices().items() if (type_ == "cpu") == (kind == "cpu"))
