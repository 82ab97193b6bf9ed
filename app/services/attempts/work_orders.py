"""Work orders: what a supervisor reads and writes for its attempt; every write carries the fencing token."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import HELD, JobState
from app.domain.nodes.limits import NodeLimits, limits_of
from app.domain.scheduling.resources import Device
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.inference import BATCH, EVALUATION, FEATURES, REPLICA, TRAINING, kind_of
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import with_image_of
from app.domain.spec.roles import TRAIN
from app.domain.units import WHOLE
from app.models import Attempt, Checkpoint, Job, Lease, Node, Reservation
from app.models import Device as DeviceRow
from app.models.base import utc_now
from app.services.access import egress
from app.services.attempts import artifact_rows, checkpoints, shards
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.attempts.completion import Ending, end_attempt
from app.services.attempts.shards import StoredShard
from app.services.attempts.work_instances import WorkInstance, instances_of
from app.services.lifecycle import transitions
from app.services.nodes import stuck_devices
from app.services.nodes.stuck_devices import HeldDevices

__all__ = [
    "Ending",
    "WorkOrder",
    "end_attempt",
    "enter",
    "enter_phase",
    "finish",
    "held_by",
    "holders",
    "load_work",
    "note_can_checkpoint",
    "reserved_for_start",
]


# By kind of job: what its attempts do, in events.
_BEGINS = {
    TRAINING: "trains",
    BATCH: "answers",
    FEATURES: "extracts features",
    EVALUATION: "evaluates",
    REPLICA: "answers requests",
}
_WORKS_IN = {TRAINING: JobState.TRAINING, REPLICA: JobState.SERVING}  # by kind of job; others: EVALUATING


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """All a supervisor needs to run one attempt; ``sealed_secrets`` is decrypted only on the node."""

    job_id: str
    project: str
    name: str
    attempt: int
    fence: int
    lease_id: str
    node: str
    node_names: tuple[str, ...]  # all nodes of the attempt, in the order of its ranks
    part: int  # index of this node among them
    framework: str
    training_type: str
    document: JobDocument
    sealed_secrets: str
    devices: tuple[Device, ...]
    threads_per_rank: int
    resume: tuple[ResumeCandidate, ...]  # newest first
    shards: tuple[StoredShard, ...] = ()  # that earlier attempts have stored, by number
    max_runtime_seconds: int | None
    ran_seconds: float  # in earlier attempts
    saves_on_request: bool = False  # its script does, as an earlier attempt reported
    device_share: int = WHOLE  # hundredths of each device
    adjustments: dict[str, Any] = field(default_factory=dict)  # batch_halvings, learning_rate_factor, rollbacks
    limits: NodeLimits = field(default_factory=NodeLimits)  # of the node
    node_defaults: dict[str, Any] = field(default_factory=dict)  # for fields that the document leaves out
    egress: tuple[str, ...] = ()  # services that it may connect to through a gate
    all_instances: tuple[WorkInstance, ...] = ()  # of a job with roles, on all nodes, by rank

    @property
    def instances(self) -> tuple[WorkInstance, ...]:
        """Those of this node."""
        return tuple(each for each in self.all_instances if each.part == self.part)

    @property
    def document_here(self) -> JobDocument:
        """The job with the image that it has on this node: that of its roles here, if they have one."""
        return with_image_of(self.document, {each.role for each in self.instances})

    @property
    def actor(self) -> str:
        return f"supervisor@{self.node}"

    @property
    def kind(self) -> str:
        """One of inference.KINDS."""
        return kind_of(self.training_type)

    @property
    def is_training(self) -> bool:
        """Whether it trains and saves checkpoints; else it evaluates and stores shards, or answers requests."""
        return self.kind == TRAINING

    @property
    def is_replica(self) -> bool:
        """Whether it answers the requests of a service, and makes nothing that is stored."""
        return self.kind == REPLICA

    @property
    def working_phase(self) -> JobState:
        """The phase in which its ranks make steps."""
        return _WORKS_IN.get(self.kind, JobState.EVALUATING)

    @property
    def is_gang(self) -> bool:
        return len(self.node_names) > 1

    @property
    def world_size(self) -> int:
        """Number of ranks on all nodes; each node has the same number, unless the job has roles."""
        if self.all_instances:
            return sum(each.ranks for each in self.all_instances)
        return len(self.node_names) * self.ranks_per_node

    @property
    def saving_ranks(self) -> int:
        """Number of ranks that a checkpoint belongs to: those of the role that trains, if the job has one."""
        trains = {role.role for role in self.document.tasks if role.program == TRAIN}
        return sum(each.ranks for each in self.all_instances if each.role in trains) or self.world_size

    @property
    def ranks_per_node(self) -> int:
        """One per device, unless a script requests another number; with roles the number here."""
        if self.all_instances:
            return sum(each.ranks for each in self.instances)
        return processes_per_node(self.document, devices=len(self.devices))


def load_work(db: Database, job_id: str, attempt: int, *, node: str | None = None) -> WorkOrder:
    """Load the work order of a claimed attempt; stores the job's threads per rank and its first node's presets.

    In a gang each node has its own number of threads, by its cores. ``node`` selects the part of a gang; None selects
    the first one.

    Raises NotFound when the attempt has no live lease.
    """
    with db.write() as session:
        live = (Lease.job_id == job_id) & (Lease.attempt == attempt) & Lease.released_at.is_(None)
        record = session.get(Attempt, (job_id, attempt))
        mine = Lease.node == node if node is not None and record is not None and len(record.node_names) > 1 else live
        lease = session.scalar(select(Lease).where(live, mine).order_by(Lease.part).limit(1))
        if lease is None or record is None:
            raise NotFound(f"attempt {attempt} of job {job_id} has no live lease")
        job = transitions.load_for_change(session, job_id)
        devices = _devices_of(session, job_id, attempt, lease.node)
        home = session.get_one(Node, lease.node)
        threads, share = job.threads_per_rank, record.device_share
        if threads is None or len(record.node_names) > 1:
            threads = _threads_per_rank(session, job, home, devices=len(devices), share=share)
        if lease.part == 0:
            job.threads_per_rank = threads
        if job.node_defaults is None:
            # Of the first node, even if another part of the gang loads its work order first.
            job.node_defaults = limits_of(session.get_one(Node, record.node_names[0]).limits).job_defaults
        return WorkOrder(
            **_job_fields(session, job),
            attempt=attempt,
            fence=lease.fence,
            lease_id=lease.id,
            node=lease.node,
            node_names=tuple(record.node_names),
            part=lease.part,
            devices=devices,
            threads_per_rank=threads,
            limits=limits_of(home.limits),
            device_share=share,
            all_instances=instances_of(record),
        )


def _job_fields(session: Session, job: Job) -> dict[str, Any]:
    """The fields of a work order that every part of a gang has from the job."""
    return {
        "job_id": job.id,
        "project": job.project,
        "name": job.name,
        "framework": job.framework,
        "training_type": job.training_type,
        "document": job.document,
        "sealed_secrets": job.sealed_secrets,
        "resume": tuple(checkpoints.resume_candidates(session, job)),
        "shards": tuple(shards.stored(session, job)),
        "max_runtime_seconds": job.max_runtime_seconds,
        "ran_seconds": job.elapsed_seconds,
        "adjustments": dict(job.adjustments),
        "saves_on_request": can_save_on_request(session, job.id),
        "node_defaults": dict(job.node_defaults or {}),
        "egress": egress.services_of(session, job.project, job.document),
    }


def enter_phase(
    db: Database, work: WorkOrder, to: JobState, *, message: str = "", start_step: int | None = None
) -> None:
    """Move the job to the phase that its trainer reports; a no-op when it is there already.

    After a restart in place the job is still in the state in which the previous attempt ended.
    """
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        enter(session, job, work, to, message=message, start_step=start_step)


def enter(
    session: Session, job: Job, work: WorkOrder, to: JobState, *, message: str = "", start_step: int | None = None
) -> None:
    """The same for the locked job, in the caller's transaction."""
    if job.state is not to or job.fence != work.fence:
        transitions.transition(session, job, to, actor=work.actor, message=message, fence=work.fence)
    if to is work.working_phase:
        attempt = session.get_one(Attempt, (work.job_id, work.attempt))
        if attempt.trained_at is None:
            _mark_training(session, job, attempt, work, start_step or 0)


def can_save_on_request(session: Session, job_id: str) -> bool:
    """Whether the job's script saves on request, by its last report in this or an earlier attempt."""
    query = (
        select(Attempt.can_checkpoint)
        .where(Attempt.job_id == job_id, Attempt.can_checkpoint.is_not(None))
        .order_by(Attempt.number.desc())
        .limit(1)
    )
    return session.scalar(query) is True


def note_can_checkpoint(db: Database, work: WorkOrder, *, can: bool) -> None:
    """Record the script's report whether it saves on request."""
    mine = (Attempt.job_id == work.job_id) & (Attempt.number == work.attempt) & (Attempt.fence == work.fence)
    with db.write() as session:
        session.execute(update(Attempt).where(mine).values(can_checkpoint=can))


def finish(db: Database, work: WorkOrder, outcome: Outcome, backoff: Backoff, *, may_restart: bool = False) -> Ending:
    """End the attempt and move the job on, in one transaction; if artifacts are many, their rows are written before.

    ``may_restart``: the caller can run the next attempt in place. If it is to do so, the result names that attempt, and
    job, lease and devices already belong to it.

    Raises LeaseLost when the attempt is no longer the job's.
    """
    artifact_rows.prepare(db, job_id=work.job_id, fence=work.fence, artifacts=outcome.artifacts)
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        if job.fence != work.fence or job.state not in HELD:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} has been ended already")
        artifact_rows.reveal(session, job.id, outcome.artifacts)
        return end_attempt(session, job, work.attempt, outcome, backoff, actor=work.actor, may_restart=may_restart)


def held_by(db: Database, job_id: str, number: int, *, node: str, place: str) -> HeldDevices | None:
    """The devices of an attempt on a node, by its record; None when there is no record or no device there."""
    with db.read() as session:
        attempt = session.get(Attempt, (job_id, number))
        held = stuck_devices.held_by(attempt, places={node: place}) if attempt is not None else []
        return next((each for each in held if each.node == node), None)


def reserved_for_start(db: Database, job_id: str, number: int, node: str) -> frozenset[int]:
    """The devices of an attempt that waits for this node to claim it; empty when it does not."""
    waits = (Lease.node == node) & (Lease.counter == 0) & Lease.released_at.is_(None)
    mine = (Reservation.job_id == job_id) & (Reservation.attempt == number) & (Reservation.node == node)
    same = (Lease.job_id == Reservation.job_id) & (Lease.attempt == Reservation.attempt)
    with db.read() as session:
        return frozenset(session.scalars(select(Reservation.device_index).join(Lease, same).where(mine, waits)))


def holders(db: Database, node: str, devices: Collection[int]) -> set[str]:
    """The jobs that hold any of these devices of the node now, or a share of one."""
    which = (Reservation.node == node) & Reservation.device_index.in_(devices)
    with db.read() as session:
        return set(session.scalars(select(Reservation.job_id).where(which)))


def _devices_of(session: Session, job_id: str, number: int, node: str) -> tuple[Device, ...]:
    rows = session.scalars(
        select(DeviceRow)
        .join(Reservation, (Reservation.node == DeviceRow.node) & (Reservation.device_index == DeviceRow.index))
        .where(Reservation.job_id == job_id, Reservation.attempt == number, Reservation.node == node)
        .order_by(DeviceRow.index)
    )
    return tuple(
        Device(index=d.index, type=d.type, memory_mb=d.memory_mb, simulated=d.simulated, uuid=d.uuid) for d in rows
    )


def _threads_per_rank(session: Session, job: Job, home: Node, *, devices: int, share: int) -> int:
    """Threads per rank: of the start checkpoint, else requested by the job, else preset by the node.

    By default, a device brings its part of the node's cores and a share of it that share, so that jobs on one node do
    not compete for cores.
    """
    start_id = job.resume_checkpoint_id if job.kind == TRAINING else None
    start = session.get(Checkpoint, start_id) if start_id is not None else None
    if start is not None and start.threads_per_rank is not None:
        return start.threads_per_rank
    # With roles by device: each instance has its own number of ranks.
    ranks = devices if job.document.tasks else processes_per_node(job.document, devices=devices)
    if asked := job.document.resource_config.cpu_cores:
        return max(1, asked // ranks)
    preset = limits_of(home.limits).default_cpu_threads
    return preset or max(1, home.cpu_cores * share * devices // (WHOLE * len(home.devices) * ranks))


def _mark_training(session: Session, job: Job, attempt: Attempt, work: WorkOrder, start_step: int) -> None:
    attempt.trained_at = utc_now()
    if job.current_step == attempt.start_step:  # nothing was reported yet, and the start step was an estimate
        job.current_step = start_step
    attempt.start_step = start_step
    before = session.get(Attempt, (work.job_id, work.attempt - 1))
    # A pause is not a fault: the user decided when the job continues.
    if before is not None and before.ended_at is not None and before.end_recover is not None:
        attempt.recover_seconds = round((attempt.trained_at - before.ended_at).total_seconds(), 3)
        # Only known now: the newest checkpoint may have turned out to be damaged.
        before.lost_steps = max(0, (before.end_step or 0) - start_step)
    where = ", ".join(work.node_names)
    transitions.record_event(
        session,
        work.job_id,
        EventType.ATTEMPT_STARTED,
        actor=work.actor,
        message=f"attempt {work.attempt} {_BEGINS[work.kind]} on {where}{_start(session, job, start_step)}",
        data={"attempt": work.attempt, "start_step": start_step, "devices": [d.index for d in work.devices]},
    )


def _start(session: Session, job: Job, step: int) -> str:
    """Describe the start; names the best checkpoint when the job asked to resume from it."""
    if job.kind == REPLICA:
        return ""
    if job.kind != TRAINING:
        return f" from {'benchmark' if job.kind == EVALUATION else 'record'} {step}"
    best = session.get(Checkpoint, job.best_checkpoint_id) if job.best_checkpoint_id is not None else None
    chosen = best is not None and best.step == step and checkpoints.resumes_from_best(job)
    return f" from step {step}, its best checkpoint" if chosen else f" from step {step}"
