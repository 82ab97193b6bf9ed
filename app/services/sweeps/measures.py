"""What the trials of a sweep have measured: objectives, constraints, and values at rungs."""

import math
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from app.domain.spec.document import is_custom, typed_hyperparameters
from app.domain.sweeps import benchmarks
from app.domain.sweeps.benchmarks import BenchmarkMetric
from app.domain.sweeps.results import mean_of, selected
from app.domain.sweeps.spec import TOKENS, Constraint, EarlyStopping, Objective
from app.models import Job, Metric
from app.services.jobs import reports
from app.services.sweeps import evaluations, lookup

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


def step_of_rung(session: Session, job: Job, rule: EarlyStopping, rung: int) -> int | None:
    """The optimizer step at which a job reaches the rung; None while the length of its epochs is not known, or so many
    tokens are yet to be reported.
    """
    if rule.unit == "steps":
        return rung
    if rule.unit == TOKENS:
        reached = select(func.min(Metric.step)).where(_points(session, job.id), Metric.name == TOKENS)
        # A run that is stopped also logs the step at which it is; one that nothing disturbs does not.
        is_regular = Metric.step % _logs_every(job) == 0
        step: int | None = session.scalar(reached.where(Metric.value >= rung, is_regular))
        return step
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


def _logs_every(job: Job) -> int:
    """Every how many steps a built-in trainer reports its metrics; a script decides that itself."""
    return 1 if is_custom(job.document) else int(typed_hyperparameters(job.document)["logging_steps"])


def first_value_from(session: Session, job: Job, metric: str, step: int) -> tuple[int, float] | None:
    """The first point of the metric at this step or later: (step, value); the value may be NaN."""
    of_benchmark = benchmarks.measured(metric)
    if of_benchmark is not None:
        return evaluations.points(session, job, of_benchmark).first_from(step)
    own = _points(session, job.id)
    query = select(Metric.step, Metric.value).where(own, Metric.name == metric, Metric.step >= step)
    row = session.execute(query.order_by(Metric.step).limit(1)).one_or_none()
    return None if row is None else (row.step, math.nan if row.value is None else row.value)


def measured_at(session: Session, job: Job, metric: str, step: int) -> datetime | None:
    """When the job itself measured this step, by the clock of its node; None where it did not, or its trunk did."""
    of_benchmark = benchmarks.measured(metric)
    name = metric if of_benchmark is None else of_benchmark.point
    query = select(Metric.at).where(Metric.job_id == job.id, Metric.name == name, Metric.step == step)
    return session.scalar(query.order_by(Metric.at.desc()).limit(1))


def newest_value(session: Session, job: Job, metric: str) -> tuple[int, float] | None:
    """The newest point of the metric: (step, value); of a benchmark the newest that is finite."""
    of_benchmark = benchmarks.measured(metric)
    if of_benchmark is not None:
        values = evaluations.points(session, job, of_benchmark).values
        return max(((step, value) for step, value in values.items() if math.isfinite(value)), default=None)
    points = _newest(session, job.id, metric, 1)
    return points[0] if points else None


def is_awaited(session: Session, job: Job, metric: str, step: int) -> bool:
    """Whether an evaluation of this step, or a later one, may still measure the metric."""
    of_benchmark = benchmarks.measured(metric)
    if of_benchmark is None:
        return False
    return any(each >= step for each in evaluations.points(session, job, of_benchmark).awaited)


def _measured(session: Session, job: Job, metric: str, select_: str, *, is_lower_better: bool) -> float | None:
    if metric.startswith(REPORT_PREFIX):
        return _of_report(session, job, metric)
    of_benchmark = benchmarks.measured(metric)
    if of_benchmark is not None:
        return _of_benchmark(session, job, of_benchmark, select_, sign=1.0 if is_lower_better else -1.0)
    if select_ == "best":
        best = func.min(Metric.value) if is_lower_better else func.max(Metric.value)
        found: float | None = session.scalar(select(best).where(_points(session, job.id), Metric.name == metric))
        return found
    count = mean_of(select_) or 1
    return selected(_newest(session, job.id, metric, count)[::-1], select_)


def _of_benchmark(session: Session, job: Job, of_it: BenchmarkMetric, select_: str, *, sign: float) -> float | None:
    values = evaluations.points(session, job, of_it).values
    found = selected([(step, sign * value) for step, value in values.items()], select_)
    return None if found is None else sign * found


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
    """Which points are those of a trial's job."""
    return or_(
        *[
            (Metric.job_id == each) & (Metric.step <= int(step)) if step < math.inf else Metric.job_id == each
            for each, step in lookup.lineage(session, job_id).items()
        ]
    )
