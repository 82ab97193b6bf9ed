"""A sound history made by hand: one job of 20 steps, killed once at step 13 and resumed from step 10."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.models import Attempt, AuditEntry, Checkpoint, Job, JobEvent, Metric
from tests.faults.history import History, JobHistory
from tests.faults.invariants import chain_of
from tests.faults.witness import Stretch

JOB = "job-1"
SECOND_NS = 1_000_000_000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 20


def good_history(folder: Path) -> History:
    """It violates no invariant; its checkpoints are stored in ``folder``."""
    checkpoints = [stored_checkpoint(folder, "ckpt-1", 1, 10), stored_checkpoint(folder, "ckpt-2", 2, STEPS)]
    artifacts = folder / "jobs" / JOB / "artifacts"
    artifacts.mkdir(parents=True)
    (artifacts / "answer.json").write_text(json.dumps({"steps": STEPS, "digest": chain_of(STEPS)}))
    events = _events()
    one = JobHistory(
        job=_job(),
        attempts=_attempts(),
        events=events,
        checkpoints=checkpoints,
        metrics=_metrics(),
        audit=[_audited(event) for event in events if event.type == "job.status"],
        stretches=_stretches(),
        logs=[(1, f"step {n}") for n in range(1, 14)] + [(2, f"step {n}") for n in range(11, STEPS + 1)],
    )
    return History(
        accepted=[JOB],
        verbs=[],
        server_errors=[],
        jobs={JOB: one},
        live_leases=[],
        reservations=[],
        storage=folder,
        stored={JOB: [c.id for c in checkpoints]},
    )


def stored_checkpoint(storage: Path, checkpoint_id: str, attempt: int, step: int) -> Checkpoint:
    """The row, and the files that belong to it."""
    folder = storage / "jobs" / JOB / "checkpoints" / checkpoint_id
    folder.mkdir(parents=True)
    state = json.dumps({"step": step, "digest": chain_of(step)}).encode()
    (folder / "state.json").write_bytes(state)
    entry = {"path": "state.json", "size": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"step": step, "files": [entry]}))
    return Checkpoint(id=checkpoint_id, job_id=JOB, attempt=attempt, step=step, deleted_at=None)


def event(seq: int, kind: str, to: str | None = None, *, before: str | None = None, **data: Any) -> JobEvent:
    return JobEvent(seq=seq, type=kind, from_status=before, to_status=to, data=data, reason="", message="", at=BEGAN)


def _job() -> Job:
    asked = {"training_config": {"hyperparameters": {"steps": str(STEPS), "witness": "127.0.0.1:1"}}}
    return Job(id=JOB, status="COMPLETED", pending_reason="", spec=asked, attempt=2)


def _attempts() -> list[Attempt]:
    def attempt(number: int, **columns: Any) -> Attempt:
        return Attempt(
            job_id=JOB,
            number=number,
            fence=2 * number - 1,
            node_names=["n1"],
            device_indices=[[0]],
            device_share=100,
            started_at=BEGAN,
            trained_at=BEGAN,
            ended_at=BEGAN + timedelta(seconds=20),
            **columns,
        )

    killed = attempt(
        1, start_step=0, end_step=13, lost_steps=3, cause="RANK_KILLED", policy="proc_restart", detect_seconds=0.1
    )
    return [killed, attempt(2, start_step=10, end_step=STEPS, lost_steps=0, cause=None, recover_seconds=1.0)]


def _events() -> list[JobEvent]:
    return [
        event(1, "job.submitted", "PENDING"),
        event(2, "job.status", "QUEUED", before="PENDING"),
        event(3, "job.status", "SCHEDULING", before="QUEUED"),
        event(4, "job.status", "PREPARING", before="SCHEDULING"),
        event(5, "job.status", "TRAINING", before="PREPARING"),
        event(6, "attempt.started", attempt=1),
        event(7, "checkpoint.saved", checkpoint_id="ckpt-1", step=10),
        event(8, "attempt.ended", attempt=1),
        event(9, "attempt.started", attempt=2),
        event(10, "checkpoint.saved", checkpoint_id="ckpt-2", step=STEPS),
        event(11, "attempt.ended", attempt=2),
        event(12, "job.status", "COMPLETED", before="TRAINING"),
    ]


def _audited(change: JobEvent) -> AuditEntry:
    return AuditEntry(action="job.status", target=JOB, data={"from": change.from_status, "to": change.to_status})


def _metrics() -> list[Metric]:
    points = [(step, 1 if step <= 10 else 2) for step in range(1, STEPS + 1)]
    return [
        Metric(job_id=JOB, name="loss", step=step, value=1.0 / step, attempt=attempt, seq=seq)
        for seq, (step, attempt) in enumerate(points, start=1)
    ]


def _stretches() -> list[Stretch]:
    return [stretch(1, start=0, last=13, began=0), stretch(2, start=10, last=STEPS, began=15)]


def stretch(attempt: int, *, start: int, last: int, began: int, rank: int = 0) -> Stretch:
    """One step a second, from ``began`` seconds on."""
    steps = tuple((step, (began + step - start) * SECOND_NS) for step in range(start + 1, last + 1))
    return Stretch(
        job_id=JOB,
        attempt=attempt,
        rank=rank,
        start_step=start,
        last_step=last,
        first_ns=began * SECOND_NS,
        last_ns=steps[-1][1],
        steps_ns=steps,
    )
