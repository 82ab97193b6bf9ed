"""What the trials of a sweep have measured: objectives, constraints, and values at rungs."""

import math
from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from app.domain.sweeps.results import mean_of, selected
from app.domain.sweeps.spec import Constraint, EarlyStopping, Objective
from app.models import Job, Metric, Trial
from app.services.jobs import reports

REPORT_PREFIX = "report."
_HUGE = 1e300  # JSON has no infinity


def objectives(session: Session, job: Job, wanted: Sequence[Objective]) -> tuple[list[float] | None, str]:
    """One value each as measured; None, and the first objective that the job has not measured, if one is missing."""
    found = []
    for objective in wanted:
        is_lower_better = objective.sign > 0
        value = _measured(session, job, objective.metric, objective.select, is_lower_better=is_lower_better)
        if value is None or not math.isfinite(value):
            return None, objective.metric
        found.append(value)
    return found, ""


def violations(session: Session, job: Job, constraints: Sequence[Constraint]) -> list[float]:
    """Per constraint by how much its value breaks it; 0 or less: it is met. One that was not measured is broken."""
    found = []
    for constraint in constraints:
        value = _measured(
            session, job, constraint.metric, constraint.select, is_lower_better=constraint.at_most is None
        )
        broken = 1.0 if value is None or not math.isfinite(value) else constraint.violation(value)
        found.append(max(-_HUGE, min(broken, _HUGE)))
    return found


def step_of_rung(job: Job, rule: EarlyStopping, rung: int) -> int | None:
    """The optimizer step at which a job reaches the rung; None while the length of its epochs is not known."""
    if rule.unit == "steps":
        return rung
    if not job.total_steps or not job.total_epochs:
        return None
    if is_exact(job, rule):
        return rung
    # Epochs are reported with two digits, and the last batch of one may be short: the evaluation at the end of an
    # epoch may come a step before this product.
    return max(1, math.floor(rung * job.total_steps / job.total_epochs) - 1)


def is_exact(job: Job, rule: EarlyStopping) -> bool:
    """Whether `step_of_rung` is the very step: rungs are steps, or each epoch is a single one."""
    return rule.unit == "steps" or job.total_steps == job.total_epochs


def first_value_from(session: Session, job_id: str, metric: str, step: int) -> tuple[int, float] | None:
    """The first point of the metric at this step or later: (step, value); the value may be NaN."""
    own = _points(session, job_id)
    query = select(Metric.step, Metric.value).where(own, Metric.name == metric, Metric.step >= step)
    row = session.execute(query.order_by(Metric.step).limit(1)).one_or_none()
    return None if row is None else (row.step, math.nan if row.value is None else row.value)


def newest_value(session: Session, job_id: str, metric: str) -> tuple[int, float] | None:
    """The newest point of the metric: (step, value)."""
    points = _newest(session, job_id, metric, 1)
    return points[0] if points else None


def _measured(session: Session, job: Job, metric: str, select_: str, *, is_lower_better: bool) -> float | None:
    if metric.startswith(REPORT_PREFIX):
        return _of_report(session, job, metric)
    if select_ == "best":
        best = func.min(Metric.value) if is_lower_better else func.max(Metric.value)
        found: float | None = session.scalar(select(best).where(_points(session, job.id), Metric.name == metric))
        return found
    count = mean_of(select_) or 1
    return selected(_newest(session, job.id, metric, count)[::-1], select_)


def _of_report(session: Session, job: Job, metric: str) -> float | None:
    """Of the report that `GET /v1/jobs/{id}/report` shows of an ended job."""
    value = getattr(reports.completion_report(session, job), metric.removeprefix(REPORT_PREFIX), None)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _newest(session: Session, job_id: str, metric: str, count: int) -> list[tuple[int, float]]:
    """The newest points, newest first."""
    query = select(Metric.step, Metric.value).where(_points(session, job_id), Metric.name == metric)
    rows = session.execute(query.order_by(Metric.step.desc()).limit(count))
    return [(row.step, math.nan if row.value is None else row.value) for row in rows]


def _points(session: Session, job_id: str) -> ColumnElement[bool]:
    """Which points are those of a trial's job: its own, and of a fork what was measured before it branched off.

    Its trunk is the same as if it had trained it. That of a trial which population based training replaced is not:
    its values were others.
    """
    found: list[ColumnElement[bool]] = [Metric.job_id == job_id]
    job = session.get(Job, job_id)
    if job is None or job.resume_checkpoint_id is None:
        return found[0]
    trial, branch = session.scalar(select(Trial).where(Trial.job_id == job_id)), math.inf
    while trial is not None and trial.parent_number is not None and trial.source != "exploited":
        branch = min(branch, trial.fork_step)
        trial = session.get(Trial, (trial.sweep_id, trial.parent_number))
        if trial is not None and trial.job_id is not None:
            found.append((Metric.job_id == trial.job_id) & (Metric.step <= int(branch)))
    return or_(*found)
