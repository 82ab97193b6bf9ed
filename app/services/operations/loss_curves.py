"""The losses of jobs as curves as small as a word, which viewers share for a moment."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.domain.loss_names import loss_of
from app.models import Job
from app.services.requests.short_cache import ShortCache
from app.services.telemetry.sparklines import Series, sampled

CURVE_POINTS = 60
CURVE_SECONDS = 5.0  # viewers share a curve for so long


def loss_curve(session: Session, job: Job, shared: ShortCache) -> tuple[str, Sequence[float]]:
    """The name of the job's loss, and its curve; empty when it reports none."""
    return loss_curves(session, [job], shared)[0]


def loss_curves(session: Session, jobs: Sequence[Job], shared: ShortCache) -> list[tuple[str, Sequence[float]]]:
    """The same for several jobs, with one query."""
    names = [loss_of(job.latest_metrics) or "" for job in jobs]
    reporting = [(job, name) for job, name in zip(jobs, names, strict=True) if name]

    def read() -> dict[str, list[float]]:
        wanted = [Series(job_id=job.id, name=name, last_step=job.current_step) for job, name in reporting]
        found = sampled(session, wanted, points=CURVE_POINTS)
        return {each.job_id: losses for each, losses in zip(wanted, found, strict=True)}

    curves = shared.get(("curves", *((job.id, name) for job, name in reporting)), CURVE_SECONDS, read)
    return [
        (name, (curves[job.id] or (float(job.latest_metrics[name]),)) if name else ())
        for job, name in zip(jobs, names, strict=True)
    ]
