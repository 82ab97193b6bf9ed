"""Types of the server's answers, for type checkers: at run time all but ``Job`` and ``Submitted`` are plain dicts.

Times are texts such as ``2026-05-17T09:30:00.000Z``, which ``datetime.fromisoformat`` reads. A newer server may send
more fields than these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from trainyard._records.attempts import Attempt as Attempt  # noqa: PLC0414 – part of what this offers
from trainyard._records.attempts import Instance as Instance  # noqa: PLC0414 – the same
from trainyard._records.attempts import PlannedInstance as PlannedInstance  # noqa: PLC0414 – the same
from trainyard._records.batches import BATCH_TERMINAL as BATCH_TERMINAL  # noqa: PLC0414 – the same
from trainyard._records.batches import RequestBatch as RequestBatch  # noqa: PLC0414 – the same
from trainyard._records.cluster import DrainedNode as DrainedNode  # noqa: PLC0414 – the same
from trainyard._records.cluster import GpuHours as GpuHours  # noqa: PLC0414 – the same
from trainyard._records.cluster import GpuHoursList as GpuHoursList  # noqa: PLC0414 – the same
from trainyard._records.cluster import NodeFit as NodeFit  # noqa: PLC0414 – the same
from trainyard._records.cluster import NodeSample as NodeSample  # noqa: PLC0414 – the same
from trainyard._records.cluster import Placement as Placement  # noqa: PLC0414 – the same
from trainyard._records.cluster import Project as Project  # noqa: PLC0414 – the same
from trainyard._records.cluster import PutBack as PutBack  # noqa: PLC0414 – the same
from trainyard._records.cluster import RegisteredModel as RegisteredModel  # noqa: PLC0414 – the same
from trainyard._records.cluster import RegisteredModels as RegisteredModels  # noqa: PLC0414 – the same
from trainyard._records.cluster import Share as Share  # noqa: PLC0414 – the same
from trainyard._records.cluster import Shares as Shares  # noqa: PLC0414 – the same
from trainyard._records.comparisons import ComparedJob as ComparedJob  # noqa: PLC0414 – the same
from trainyard._records.comparisons import Comparison as Comparison  # noqa: PLC0414 – the same
from trainyard._records.files import StoredFile as StoredFile  # noqa: PLC0414 – the same
from trainyard._records.inference import BenchmarkResult as BenchmarkResult  # noqa: PLC0414 – the same
from trainyard._records.inference import ComparedMetric as ComparedMetric  # noqa: PLC0414 – the same
from trainyard._records.inference import CreatedEvaluation as CreatedEvaluation  # noqa: PLC0414 – the same
from trainyard._records.inference import CreatedInference as CreatedInference  # noqa: PLC0414 – the same
from trainyard._records.inference import Difference as Difference  # noqa: PLC0414 – the same
from trainyard._records.inference import Evaluation as Evaluation  # noqa: PLC0414 – the same
from trainyard._records.inference import EvaluationComparison as EvaluationComparison  # noqa: PLC0414 – the same
from trainyard._records.inference import Figure as Figure  # noqa: PLC0414 – the same
from trainyard._records.inference import InferenceJob as InferenceJob  # noqa: PLC0414 – the same
from trainyard._records.inference import ReportedEvaluation as ReportedEvaluation  # noqa: PLC0414 – the same
from trainyard._records.inference import Verdict as Verdict  # noqa: PLC0414 – the same
from trainyard._records.interactive import InteractiveSession as InteractiveSession  # noqa: PLC0414 – the same
from trainyard._records.interactive import JobPort as JobPort  # noqa: PLC0414 – the same
from trainyard._records.reports import Artifact as Artifact  # noqa: PLC0414 – the same
from trainyard._records.reports import Goodput as Goodput  # noqa: PLC0414 – the same
from trainyard._records.reports import Report as Report  # noqa: PLC0414 – the same
from trainyard._records.services import SERVICE_TERMINAL as SERVICE_TERMINAL  # noqa: PLC0414 – the same
from trainyard._records.services import CreatedService as CreatedService  # noqa: PLC0414 – the same
from trainyard._records.services import Replica as Replica  # noqa: PLC0414 – the same
from trainyard._records.services import ServedLoad as ServedLoad  # noqa: PLC0414 – the same
from trainyard._records.services import Service as Service  # noqa: PLC0414 – the same
from trainyard._records.services import ServiceEvent as ServiceEvent  # noqa: PLC0414 – the same
from trainyard._records.services import ServiceMetrics as ServiceMetrics  # noqa: PLC0414 – the same
from trainyard._records.services import Usage as Usage  # noqa: PLC0414 – the same
from trainyard._records.sweeps import SWEEP_TERMINAL as SWEEP_TERMINAL  # noqa: PLC0414 – the same
from trainyard._records.sweeps import BestTrial as BestTrial  # noqa: PLC0414 – the same
from trainyard._records.sweeps import BestTrials as BestTrials  # noqa: PLC0414 – the same
from trainyard._records.sweeps import CreatedSweep as CreatedSweep  # noqa: PLC0414 – the same
from trainyard._records.sweeps import DeletedSweep as DeletedSweep  # noqa: PLC0414 – the same
from trainyard._records.sweeps import EarlierResult as EarlierResult  # noqa: PLC0414 – the same
from trainyard._records.sweeps import Replay as Replay  # noqa: PLC0414 – the same
from trainyard._records.sweeps import Sweep as Sweep  # noqa: PLC0414 – the same
from trainyard._records.sweeps import SweepPlan as SweepPlan  # noqa: PLC0414 – the same
from trainyard._records.sweeps import Trial as Trial  # noqa: PLC0414 – the same
from trainyard._records.sweeps import TrialReport as TrialReport  # noqa: PLC0414 – the same
from trainyard._records.sweeps import Value as Value  # noqa: PLC0414 – the same
from trainyard._records.webhooks import Deliveries as Deliveries  # noqa: PLC0414 – the same
from trainyard._records.webhooks import Delivery as Delivery  # noqa: PLC0414 – the same
from trainyard._records.webhooks import DeliveryWithPayload as DeliveryWithPayload  # noqa: PLC0414 – the same
from trainyard._records.webhooks import NewWebhook as NewWebhook  # noqa: PLC0414 – the same
from trainyard._records.webhooks import Webhook as Webhook  # noqa: PLC0414 – the same

TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "PREEMPTED"})
Metric = float | str  # "NaN", "Infinity" and "-Infinity" are texts: JSON has no such numbers


@dataclass(frozen=True)
class Submitted:
    """The answer to a submission."""

    job_id: str
    status: str
    message: str = ""
    estimated_wait_seconds: float | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Submitted":
        return cls(
            data["job_id"],
            data["status"],
            data.get("message") or "",
            estimated_wait_seconds=data.get("estimated_wait_seconds"),
            warnings=tuple(data.get("warnings") or ()),
        )


@dataclass(frozen=True)
class Job:
    """A job; ``data`` holds the complete answer, the other fields the most used values."""

    job_id: str
    name: str
    status: str
    project: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    progress: float = 0.0
    current_step: int = 0
    total_steps: int | None = None
    eta_seconds: float | None = None
    elapsed_seconds: float = 0.0
    attempt: int = 0
    node_names: Sequence[str] = ()
    latest_metrics: Mapping[str, Metric] = field(default_factory=dict)
    latest_checkpoint_id: str | None = None
    best_checkpoint_id: str | None = None
    queue_position: int | None = None
    estimated_start_at: str | None = None
    pending_reason: str = ""
    requested: str | None = None
    parent_job_id: str | None = None
    sweep_id: str | None = None
    child_job_ids: Sequence[str] = ()
    evaluations: Sequence[str] = ()
    error_type: str | None = None
    error_message: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Job":
        names = cls.__dataclass_fields__.keys() - {"data"}
        known = {name: data[name] for name in names if data.get(name) is not None}
        return cls(**{"name": "", "status": "", **known}, data=data)


class Candidate(TypedDict):
    name: str
    fits_now: bool
    reason: str


class Plan(TypedDict):
    project: str
    queue: str
    priority: int
    queue_position: int
    estimated_wait_seconds: float | None
    candidate_nodes: list[Candidate]
    instances: list[PlannedInstance]  # of a job with roles, if they would all start now
    device_type: str | None
    gpu_type: str
    devices: int
    training_type: str
    framework: str
    max_retries: int
    max_runtime_seconds: int | None
    resumes_from: str | None
    memory: dict[str, Any] | None


class DryRun(TypedDict):
    valid: bool
    plan: Plan
    warnings: list[str]
    data: NotRequired["DataReport"]  # of inference jobs and evaluations, where it was asked for


class Event(TypedDict):
    id: str
    at: str
    type: str
    from_status: str | None
    to_status: str | None
    actor: str
    reason: str
    message: str
    data: dict[str, Any]


class LogLine(TypedDict):
    id: str
    attempt: int
    n: int
    at: str
    rank: int
    line: str


class Checkpoint(TypedDict):
    checkpoint_id: str
    step: int
    epoch: float
    created_at: str
    size_bytes: int
    sha256: str
    world_size: int
    metrics: dict[str, Metric]
    is_best: bool
    is_complete: bool
    uri: str


class Metrics(TypedDict):
    """``series`` has ``[step, at, value]`` of each point."""

    latest: dict[str, Metric]
    series: dict[str, list[list[Any]]]
    checkpoints: list[Checkpoint]


class Queue(TypedDict):
    name: str
    paused: bool
    max_running_jobs: int | None
    max_waiting_jobs: int | None
    weight: float | None
    waiting: int
    running: int
    created_at: str


class QueueEntry(TypedDict):
    job_id: str
    name: str
    project: str
    status: str
    queue: str
    priority: int
    position: int
    position_in_project: int
    waiting_seconds: float
    pending_reason: str
    created_at: str
    queued_at: str | None


class Device(TypedDict):
    index: int
    type: str
    memory_mb: int
    simulated: bool
    link_group: int | None
    in_use: bool
    share_in_use: float
    out_of_service_reason: str


class Node(TypedDict):
    name: str
    status: str
    quarantine_reason: str
    labels: list[str]
    admin_labels: list[str]
    capabilities: list[str]
    limits: dict[str, Any]
    cpu_cores: int
    ram_mb: int
    storage_mb: int
    devices: list[Device]
    active_jobs: int
    reputation: float
    arch: str
    sandbox: str
    version: str
    created_at: str
    last_seen_at: str


class Key(TypedDict):
    key_id: str
    name: str
    role: str
    project: str | None
    prefix: str
    access_key: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    replaced_by: str | None
    requests_per_minute: int | None
    tokens_per_minute: int | None


class User(TypedDict):
    """A person of an identity provider; ``role`` and ``project`` are those of the key of the sign-ins."""

    user_id: str
    name: str
    email: str
    email_verified: bool
    issuer: str
    subject: str
    groups: list[str]
    key_id: str
    role: str | None
    project: str | None
    is_active: bool
    created_at: str
    last_seen_at: str


class NewKey(TypedDict):
    """The only answer that ever contains ``key`` and ``secret_key``."""

    key_id: str
    key: str
    access_key: str
    secret_key: str
    role: str
    project: str | None
    expires_at: str | None


class AuditEntry(TypedDict):
    id: str
    at: str
    project: str | None
    actor: str
    action: str
    target: str
    outcome: str
    message: str
    request_id: str
    address: str
    data: dict[str, Any]


class DataReport(TypedDict):
    """Parts that were not checked have no figures."""

    valid: bool
    errors: list[dict[str, str]]
    warnings: list[str]
    left_out: list[str]
    sources: list[dict[str, Any]]
    lengths: NotRequired[dict[str, int]]
    truncated_share: NotRequired[float | None]
    batch: NotRequired[dict[str, Any]]
    model: NotRequired[dict[str, Any]]


class TrainingType(TypedDict):
    training_type: str
    framework: str
    description: str
    record_shapes: list[str]
    export_formats: list[str]
    any_hyperparameter: bool
    hyperparameters: list[dict[str, Any]]


class ErrorType(TypedDict):
    name: str
    meaning: str
    retried: bool


# Aliases, because a class with a method `list` cannot annotate list[…] in its other methods.
LogLines = list[LogLine]
Checkpoints = list[Checkpoint]
Attempts = list[Attempt]
Artifacts = list[Artifact]
Queues = list[Queue]
QueueEntries = list[QueueEntry]
AuditEntries = list[AuditEntry]
TrainingTypes = list[TrainingType]
ErrorTypes = list[ErrorType]
