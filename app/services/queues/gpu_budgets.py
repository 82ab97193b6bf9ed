"""GPU-hour budgets: when a project's monthly budget is used up, its running jobs save and requeue."""

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.states import HELD, JobState
from app.domain.scheduling.fair_share import quota_of
from app.models import Attempt, Job, Project
from app.services.lifecycle import audit, transitions
from app.services.queues import project_quotas

# An exporting job is nearly done, and would have to export again.
_ASKED = HELD - {JobState.EXPORTING}


def requeue_over_budget(db: Database, *, actor: str, nudge: Callable[[str, str], None]) -> list[str]:
    """Request that all GPU jobs of projects without GPU-hours left save and requeue; returns these jobs.

    They start again when there are hours left. ``nudge`` wakes the node of a job that is to stop.
    """
    with db.read() as session:
        used_up = _used_up(session)
        found = _with_gpus(session, list(used_up)) if used_up else []
    asked = []
    for job_id, project in found:
        with db.write() as session:
            job = transitions.load_for_change(session, job_id)
            if job.state not in _ASKED or job.requested is not None:
                continue
            job.requested, job.requested_reason, job.requested_by = "requeue", used_up[project], actor
            job.mark_changed()
            audit.record(
                session, actor=actor, action="job.requeue", project=project, target=job_id, message=used_up[project]
            )
            names = list(job.node_names)
        asked.append(job_id)
        for name in names:
            nudge(job_id, name)
    return asked


def _used_up(session: Session) -> dict[str, str]:
    """Project → reason, for projects without GPU-hours left."""
    rows = session.execute(select(Project.name, Project.quota)).all()
    return project_quotas.hours_used_up(session, {row.name: quota_of(row.quota) for row in rows})


def _with_gpus(session: Session, projects: list[str]) -> list[tuple[str, str]]:
    query = (
        select(Job.id, Job.project)
        .join(Attempt, (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt))
        .where(Job.project.in_(projects), Job.status.in_(_ASKED), Job.requested.is_(None), Attempt.device_type != "cpu")
        .order_by(Job.id)
    )
    return [(row.id, row.project) for row in session.execute(query)]
