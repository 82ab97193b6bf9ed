"""What the jobs of a running batch have done: counts of their stored shards, and a priority that rises with need."""

from collections.abc import Sequence

from app.domain.batches import deadline
from app.domain.errors import Conflict
from app.domain.lifecycle.states import TERMINAL
from app.models import Batch, BatchJob, Job
from app.models.base import utc_now
from app.services.batches import rows
from app.services.inference import listing
from app.services.jobs import updates
from app.services.requests.control_plane import ControlPlane

_COUNTED = ("completed", "failed", "prompt_tokens", "completion_tokens")


def count(plane: ControlPlane, seen: Batch, jobs: Sequence[tuple[BatchJob, Job | None]]) -> None:
    """Write how many requests are answered by now; reads only where that has not changed."""
    with plane.db.read() as session:
        counted = list(listing.counts(session, [job.id for _, job in jobs if job is not None]).values())
    failed = sum(each.failed for each in counted)
    found = {
        "completed": sum(each.records for each in counted) - failed,
        "failed": failed,
        "prompt_tokens": sum(each.prompt_tokens for each in counted),
        "completion_tokens": sum(each.completion_tokens for each in counted),
    }
    if all(getattr(seen, name) == found[name] for name in _COUNTED):
        return
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.ended_at is None:
            for name in _COUNTED:
                setattr(batch, name, found[name])
            batch.updated_at = utc_now()


def raise_priority(plane: ControlPlane, batch: Batch, jobs: Sequence[tuple[BatchJob, Job | None]]) -> None:
    """The less is left of the window, the sooner its jobs are to run."""
    passed = (utc_now() - batch.created_at).total_seconds() / max(1, batch.window_seconds)
    wanted = [
        (job.id, _wanted(job, passed))
        for _, job in jobs
        if job is not None and job.state not in TERMINAL and job.priority < _wanted(job, passed)
    ]
    for job_id, priority in wanted:
        try:
            updates.change(plane, rows.caller_of(batch), job_id, {"priority": priority})
        except Conflict:
            continue  # it has just ended


def _wanted(job: Job, passed: float) -> int:
    return deadline.priority(job.document.scheduling_config.priority, job.priority, passed)
