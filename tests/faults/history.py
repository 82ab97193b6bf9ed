"""Everything that is known about a system after its faults: the answers that clients got, what the witness saw, what
the database and the disks hold. The invariants check nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select

from app.database.engine import Database, make_engine
from app.models import Attempt, AuditEntry, Checkpoint, Job, JobEvent, Lease, Metric, Reservation
from app.models.base import utc_now
from app.services.operations.orphan_cleanup import OrphanSweep
from app.storage.logs import LogReader
from app.storage.storage import Storage
from tests.faults.cluster import Cluster
from tests.faults.witness import Stretch, stretches_of
from workers.node.attempt_manager import CLEAN_SECONDS

CLEANED_WITHIN = timedelta(seconds=CLEAN_SECONDS + 2)


@dataclass(frozen=True, kw_only=True)
class JobHistory:
    """One job; ``logs`` are (attempt, line) of rank 0 in the order in which readers see them."""

    job: Job
    attempts: Sequence[Attempt]
    events: Sequence[JobEvent]
    checkpoints: Sequence[Checkpoint]  # also retired ones
    metrics: Sequence[Metric]
    audit: Sequence[AuditEntry]
    stretches: Sequence[Stretch]
    logs: Sequence[tuple[int, str]] = ()

    @property
    def asked_steps(self) -> int:
        asked = self.job.spec["training_config"]["hyperparameters"]
        return int(asked["steps"] if self.is_witnessed else asked["max_steps"])

    @property
    def is_witnessed(self) -> bool:
        """Whether it runs the script that tells the witness; of others less is known."""
        return "witness" in self.job.spec["training_config"]["hyperparameters"]

    @property
    def leading(self) -> list[Stretch]:
        """What rank 0 trained, in order."""
        return [stretch for stretch in self.stretches if stretch.rank == 0]

    def saved_before(self, attempt: int) -> list[Checkpoint]:
        """What an attempt could have started from, in the order of recording, without what turned out to be corrupt."""
        fallbacks = [e.data.get("checkpoint_id") for e in self.events if e.type == "job.resume_fallback"]
        order = [e.data["checkpoint_id"] for e in self.events if e.type == "checkpoint.saved"]
        usable = [c for c in self.checkpoints if c.attempt < attempt and c.id not in fallbacks and c.id in order]
        return sorted(usable, key=lambda c: order.index(c.id))


@dataclass(frozen=True, kw_only=True)
class History:
    accepted: Sequence[str]
    verbs: Sequence[tuple[str, str]]
    server_errors: Sequence[tuple[str, int]]
    jobs: Mapping[str, JobHistory]
    live_leases: Sequence[Lease]
    reservations: Sequence[Reservation]
    storage: Path
    processes: Sequence[str] = ()  # command lines of what still runs for a job
    run_directories: Sequence[Path] = ()
    mounts: Sequence[str] = ()
    stored: Mapping[str, Sequence[str]] = field(default_factory=dict)  # job → names in its checkpoint folder


def collect(cluster: Cluster) -> History:
    """Read it all, past every process of the system. What dead writers left in the storage is swept first.

    Also what is not old enough, or was made by a machine whose clock is ahead.
    """
    db = Database().bind(make_engine(cluster.database_url))
    try:
        OrphanSweep(db, f"file://{cluster.storage}", age_limit=timedelta(days=-2)).run_round(jobs=10_000)
        jobs = {job_id: _job(db, cluster, job_id) for job_id in _job_ids(db)}
        with db.read() as session:
            leases = session.scalars(select(Lease).where(Lease.released_at.is_(None))).all()
            reservations = session.scalars(select(Reservation)).all()
    finally:
        db.close()
    scratch = {path for path in run_directories(cluster) if not _is_young(path, jobs)}
    return History(
        accepted=tuple(cluster.ledger.accepted),
        verbs=tuple(cluster.ledger.verbs),
        server_errors=tuple(cluster.ledger.server_errors),
        jobs=jobs,
        live_leases=leases,
        reservations=reservations,
        storage=cluster.storage,
        processes=[" ".join(p.cmdline()) for p in cluster.left_of_attempts()],
        run_directories=sorted(scratch),
        mounts=_mounts(cluster.folder),
        stored={job_id: _names(cluster.storage / "jobs" / job_id / "checkpoints") for job_id in jobs},
    )


def run_directories(cluster: Cluster) -> list[Path]:
    """Scratch directories of attempts, on every node."""
    return [path for name in cluster.node_names for path in (cluster.node_dir(name) / "run" / "jobs").glob("*/*")]


def _is_young(directory: Path, jobs: Mapping[str, JobHistory]) -> bool:
    """Of an attempt that ended so recently that its node has not looked for leftovers since."""
    one = jobs.get(directory.parent.name)
    number = int(directory.name.removesuffix(".taken"))
    ends = [attempt.ended_at for attempt in one.attempts if attempt.number == number] if one is not None else []
    return any(end is None or utc_now() - end < CLEANED_WITHIN for end in ends)


def _job_ids(db: Database) -> list[str]:
    with db.read() as session:
        return list(session.scalars(select(Job.id).order_by(Job.id)))


def _job(db: Database, cluster: Cluster, job_id: str) -> JobHistory:
    with db.read() as session:
        rows = {
            "attempts": session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)).all(),
            "events": session.scalars(select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.seq)).all(),
            "checkpoints": session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id)).all(),
            "metrics": session.scalars(select(Metric).where(Metric.job_id == job_id).order_by(Metric.seq)).all(),
            "audit": session.scalars(select(AuditEntry).where(AuditEntry.target == job_id)).all(),
        }
        job = session.get_one(Job, job_id)
    lines = LogReader(Storage(f"file://{cluster.storage}"), job_id).tail(1_000_000, rank=0, live=False)
    return JobHistory(
        job=job,
        stretches=stretches_of(cluster.witness.of(job_id)),
        logs=[(one.attempt, one.line) for one in lines],
        **rows,  # type: ignore[arg-type]
    )


def _mounts(folder: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(f"{folder}/")]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
