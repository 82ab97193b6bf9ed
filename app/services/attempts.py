"""An attempt from its work order to its end; every write carries the fencing token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from app.domain.errors import LeaseLost, NotFound
from app.domain.events import EventType
from app.domain.job_state import HELD, JobState
from app.domain.outcomes import Decision, OutcomeKind, decide
from app.domain.resources import Device
from app.domain.retry import Backoff
from app.extensions import Database
from app.models import Artifact, Attempt, Checkpoint, Job, Lease, Node, Reservation
from app.models import Device as DeviceRow
from app.models.base import database_now, utc_now
from app.services import checkpoints, lifecycle
from app.services.checkpoints import ResumeCandidate

_NO_ERROR: dict[str, Any] = {"error_type": None, "error_message": None, "error_stack": None}


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a supervisor must know to run one attempt; ``sealed_secrets`` is opened only on the node."""

    job_id: str
    project: str
    name: str
    attempt: int
    fence: int
    lease_id: str
    node: str
    framework: str
    training_type: str
    spec: dict[str, Any]
    sealed_secrets: str
    devices: tuple[Device, ...]
    threads_per_rank: int
    resume: tuple[ResumeCandidate, ...]  # newest first
    max_runtime_seconds: int | None
    ran_seconds: float  # in earlier attempts

    @property
    def actor(self) -> str:
        return f"supervisor@{self.node}"


@dataclass(frozen=True, kw_only=True)
class NewArtifact:
    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an attempt ended. ``cause`` is one of ``domain.errors.ERROR_TYPES`` when it failed."""

    kind: OutcomeKind
    cause: str = ""
    message: str = ""
    stack: str = ""
    exit_code: int | None = None
    end_step: int = 0
    ran_seconds: float = 0.0
    related_task: str = ""
    report: dict[str, Any] = field(default_factory=dict)  # model_hash, model_uri, weight_files, final_metrics
    artifacts: Sequence[NewArtifact] = ()


def load_work(db: Database, job_id: str, attempt: int) -> Work:
    """The work order of a claimed attempt. Fixes the job's threads per rank at its first attempt.

    Raises NotFound when the attempt has no live lease.
    """
    with db.write() as session:
        lease = session.scalar(
            select(Lease).where(Lease.job_id == job_id, Lease.attempt == attempt, Lease.released_at.is_(None))
        )
        if lease is None:
            raise NotFound(f"attempt {attempt} of job {job_id} has no live lease")
        job = lifecycle.load_for_change(session, job_id)
        devices = _devices_of(session, job_id, attempt)
        if job.threads_per_rank is None:
            job.threads_per_rank = _threads_per_rank(session, job, lease.node, len(devices))
        return Work(
            job_id=job_id, project=job.project, name=job.name, attempt=attempt, fence=lease.fence, lease_id=lease.id,
            node=lease.node, framework=job.framework, training_type=job.training_type, spec=job.spec,
            sealed_secrets=job.sealed_secrets, devices=devices, threads_per_rank=job.threads_per_rank,
            resume=tuple(checkpoints.resume_candidates(session, job)), max_runtime_seconds=job.max_runtime_seconds,
            ran_seconds=job.elapsed_seconds,
        )  # fmt: skip


def enter_phase(db: Database, work: Work, to: JobState, *, message: str = "", start_step: int | None = None) -> None:
    """Move the job to the phase its trainer reports; a no-op when it is there already."""
    with db.write() as session:
        job = lifecycle.load_for_change(session, work.job_id)
        if job.state is to and job.fence == work.fence:
            return
        first_training = to is JobState.TRAINING and job.state is JobState.PREPARING
        lifecycle.transition(session, job, to, actor=work.actor, message=message, fence=work.fence)
        if first_training:
            _mark_training(session, job, work, start_step or 0)


def note_can_checkpoint(db: Database, work: Work, *, can: bool) -> None:
    """Whether the attempt's script saves on request, as it has said itself."""
    mine = (Attempt.job_id == work.job_id) & (Attempt.number == work.attempt) & (Attempt.fence == work.fence)
    with db.write() as session:
        session.execute(update(Attempt).where(mine).values(can_checkpoint=can))


def finish(db: Database, work: Work, outcome: Outcome, backoff: Backoff) -> JobState:
    """End the attempt and move the job on, in one transaction; returns the job's new state.

    Raises LeaseLost when the attempt is no longer the job's.
    """
    with db.write() as session:
        job = lifecycle.load_for_change(session, work.job_id)
        if job.fence != work.fence or job.state not in HELD:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} was ended by somebody else")
        for a in outcome.artifacts:
            # An earlier attempt may have got as far, and failed only afterwards.
            session.merge(Artifact(job_id=job.id, path=a.path, size_bytes=a.size_bytes, sha256=a.sha256))
        return end_attempt(session, job, work.attempt, outcome, backoff, actor=work.actor)


def end_attempt(session: Session, job: Job, number: int, outcome: Outcome, backoff: Backoff, *, actor: str) -> JobState:
    """Close the attempt's record, free its lease and devices, and move the locked job where the outcome leads."""
    decision = decide(
        outcome.kind, cause=outcome.cause, requested=job.requested, retries_used=job.retries_used,
        max_retries=job.max_retries, backoff=backoff,
    )  # fmt: skip
    if job.state is JobState.EXPORTING and decision.state is JobState.PAUSED:
        # Nothing is left to pause: the table lets an export only end or be done again.
        decision = Decision(state=JobState.QUEUED, retry_after_seconds=0.0, policy="job_reschedule")
    gpu_count = _free(session, job.id, number)
    _close_record(session, job, number, outcome, decision)
    lifecycle.record_event(
        session, job.id, EventType.ATTEMPT_ENDED, actor=actor, reason=outcome.cause or outcome.kind,
        message=outcome.message, data={"attempt": number, "end_step": outcome.end_step, "exit_code": outcome.exit_code},
    )  # fmt: skip
    lifecycle.transition(
        session, job, decision.state, actor=actor, reason=outcome.cause or outcome.kind, message=outcome.message,
        elapsed_seconds=job.elapsed_seconds + outcome.ran_seconds,
        gpu_seconds=job.gpu_seconds + outcome.ran_seconds * gpu_count,
        **_changes(session, job, outcome, decision),
    )  # fmt: skip
    return decision.state


def _changes(session: Session, job: Job, outcome: Outcome, decision: Decision) -> dict[str, Any]:
    """Columns of the job that change together with the state an attempt's end leads to."""
    if decision.state is JobState.COMPLETED:
        return {"progress": 1.0, "report": outcome.report, **_NO_ERROR}
    # A model that was stored before the job failed or was cancelled is there for whoever wants it.
    kept = {"report": outcome.report} if outcome.report else {}
    if decision.state is JobState.CANCELLED:
        return _NO_ERROR | kept
    error = {"error_type": outcome.cause, "error_message": outcome.message, "error_stack": outcome.stack or None}
    if decision.state is JobState.FAILED:
        return error | kept
    if decision.state is JobState.QUEUED and outcome.kind == "failed":
        wait = decision.retry_after_seconds or 0.0
        retry = job.retries_used + 1
        return {
            **error,
            "retries_used": retry,
            "not_before_at": database_now(session) + timedelta(seconds=wait),
            "pending_reason": f"retry {retry} of {job.max_retries} after {outcome.cause}, in {wait:g} s",
        }
    return {}


def _close_record(session: Session, job: Job, number: int, outcome: Outcome, decision: Decision) -> None:
    attempt = session.get_one(Attempt, (job.id, number))
    attempt.ended_at = utc_now()
    attempt.cause = outcome.cause or None
    attempt.end_reason = outcome.message or outcome.kind
    attempt.end_related_task = outcome.related_task or None
    attempt.end_recover = decision.policy
    attempt.policy = decision.policy
    attempt.exit_code = outcome.exit_code
    attempt.end_step = max(outcome.end_step, attempt.start_step)
    saved = checkpoints.newest_step(session, job.id, number)
    attempt.lost_steps = 0 if outcome.kind == "completed" else attempt.end_step - max(saved, attempt.start_step)


def _free(session: Session, job_id: str, number: int) -> int:
    """Release lease and devices of an attempt; returns how many of the devices were GPUs."""
    mine = (Reservation.job_id == job_id) & (Reservation.attempt == number)
    kinds = session.scalars(
        select(DeviceRow.type)
        .join(Reservation, (Reservation.node == DeviceRow.node) & (Reservation.device_index == DeviceRow.index))
        .where(mine)
    ).all()
    session.execute(delete(Reservation).where(mine))
    session.execute(
        update(Lease)
        .where(Lease.job_id == job_id, Lease.attempt == number, Lease.released_at.is_(None))
        .values(released_at=utc_now())
    )
    return sum(kind != "cpu" for kind in kinds)


def _devices_of(session: Session, job_id: str, number: int) -> tuple[Device, ...]:
    rows = session.scalars(
        select(DeviceRow)
        .join(Reservation, (Reservation.node == DeviceRow.node) & (Reservation.device_index == DeviceRow.index))
        .where(Reservation.job_id == job_id, Reservation.attempt == number)
        .order_by(DeviceRow.index)
    )
    return tuple(Device(index=d.index, type=d.type, memory_mb=d.memory_mb, simulated=d.simulated) for d in rows)


def _threads_per_rank(session: Session, job: Job, node: str, ranks: int) -> int:
    """What the checkpoint that the job starts from was made with, else the job's share of the node's cores.

    Each device brings its part of them, so that jobs side by side leave each other theirs; ``cpu_cores`` asks for more.
    """
    start = session.get(Checkpoint, job.resume_checkpoint_id) if job.resume_checkpoint_id is not None else None
    if start is not None and start.threads_per_rank is not None:
        return start.threads_per_rank
    asked: int | None = job.spec["resource_config"].get("cpu_cores")
    if asked:
        return max(1, asked // ranks)
    home = session.get_one(Node, node)
    return max(1, home.cpu_cores // len(home.devices))


def _mark_training(session: Session, job: Job, work: Work, start_step: int) -> None:
    now = utc_now()
    attempt = session.get_one(Attempt, (work.job_id, work.attempt))
    attempt.start_step = start_step
    ended_at = session.scalar(
        select(Attempt.ended_at).where(Attempt.job_id == work.job_id, Attempt.number == work.attempt - 1)
    )
    if ended_at is not None:
        attempt.recover_seconds = round((now - ended_at).total_seconds(), 3)
    lifecycle.record_event(
        session, work.job_id, EventType.ATTEMPT_STARTED, actor=work.actor,
        message=f"attempt {work.attempt} trains on {work.node} from {_start(session, job, start_step)}",
        data={"attempt": work.attempt, "start_step": start_step, "devices": [d.index for d in work.devices]},
    )  # fmt: skip


def _start(session: Session, job: Job, step: int) -> str:
    """Also says when an attempt went back behind the newest checkpoint because the job wishes so."""
    best = session.get(Checkpoint, job.best_checkpoint_id) if job.best_checkpoint_id is not None else None
    chosen = best is not None and best.step == step and checkpoints.resumes_from_best(job)
    return f"step {step}, its best checkpoint" if chosen else f"step {step}"
