"""Comparison of jobs: what differs in their documents, their final and best metrics, and their curves on one axis."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.downsampling import FEWEST
from app.domain.errors import NotFound
from app.domain.json_numbers import number_of
from app.domain.lifecycle.comparison import (
    FieldDifference,
    best_of,
    differences_to_first,
    document_differences,
    goal_in,
)
from app.domain.lifecycle.states import TERMINAL
from app.domain.metric_groups import group_of, order_of
from app.domain.spec.metric_goals import Goal
from app.models import Attempt, Job, Node
from app.security.permissions import Caller
from app.services.jobs import history, lookup, reports
from app.services.jobs.details import JobDetails, details_of
from app.services.jobs.reports import CompletionReport
from app.services.queues import gpu_hours
from app.services.telemetry import curves as axes
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import SeriesPoint

Axis = Literal["step", "seconds", "tokens"]
MOST_METRICS = 20
MOST_POINTS = 100_000  # of all curves together: they are held in memory, and some 5 MB of the answer


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """``metrics`` empty: those that most of the jobs have. ``max_points``: of each curve.

    ``reads``: how much is read of the metrics' points. "curves" is all of it; "best" is the best values alone, which
    the database finds; "final" nothing.
    """

    jobs: Sequence[str]
    metrics: Sequence[str] = ()
    by: Axis = "step"
    max_points: int = 200
    reads: Literal["curves", "best", "final"] = "curves"


@dataclass(frozen=True, kw_only=True)
class ComparedJob:
    """``attempt`` is the newest, ``report`` that of an ended job; ``versions`` maps nodes of the attempt.

    ``gpu_seconds``: of ended attempts and the running one.
    """

    details: JobDetails
    attempt: Attempt | None
    report: CompletionReport | None
    versions: Mapping[str, str]
    gpu_seconds: float

    @property
    def job(self) -> Job:
        return self.details.job

    @property
    def model_hash(self) -> str | None:
        """None before the end, and for a job without a model."""
        return (self.report.model_hash or None) if self.report is not None else None

    @property
    def final(self) -> dict[str, float]:
        """The final metrics of an ended job; before that, the newest value of each."""
        found = {**self.job.latest_metrics, **(self.report.final_metrics if self.report is not None else {})}
        return {name: number_of(None, v) if isinstance(v, str) else float(v) for name, v in found.items()}


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """Lists have a value per job, None where there is none; differences are those to the first job."""

    goal: Goal | None
    final: Sequence[float | None]
    best: Sequence[float | None]

    @property
    def final_difference(self) -> list[float | None]:
        return differences_to_first(self.final)

    @property
    def best_difference(self) -> list[float | None]:
        return differences_to_first(self.best)


@dataclass(frozen=True)
class CurvePoint:
    x: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """``left_out``: metrics beyond the limit. ``curves``: metric → one list of points per job."""

    jobs: Sequence[ComparedJob]
    differences: Sequence[FieldDifference]
    metrics: Mapping[str, ComparedMetric]
    left_out: Sequence[str]
    curves: Mapping[str, list[list[CurvePoint]]]


def compare(session: Session, caller: Caller, request: ComparisonRequest) -> Comparison:
    """Compare jobs that the caller sees. Changes nothing. Raises NotFound with the field of the id."""
    jobs = _compared(session, details_of(session, _found(session, caller, request.jobs)))
    finals = [each.final for each in jobs]
    names, left_out = _selected(finals, request.metrics)
    series = [_series(session, each.job.id, names, request) for each in jobs]
    metrics = {}
    for name in names:
        goal = goal_in([each.details.document.output_config.checkpoint for each in jobs], name)
        parts = zip(jobs, series, strict=True)
        if request.reads == "curves":
            best = [_best(session, each, name, found.get(name, []), goal) for each, found in parts]
        else:
            best = [_best_stored(session, each, name, goal if request.reads == "best" else None) for each in jobs]
        metrics[name] = ComparedMetric(goal=goal, final=[final.get(name) for final in finals], best=best)
    return Comparison(
        jobs=jobs,
        differences=document_differences([_document(each.details) for each in jobs]),
        metrics=metrics,
        left_out=left_out,
        curves=_curves(session, [each.job for each in jobs], series, names, request.by),
    )


def missing(session: Session, caller: Caller, job_ids: Sequence[str]) -> list[str]:
    """The ids that are of no job, or of none that the caller sees."""
    found = []
    for job_id in job_ids:
        try:
            lookup.find(session, caller, job_id)
        except NotFound:
            found.append(job_id)
    return found


def curves(session: Session, caller: Caller, request: ComparisonRequest) -> Mapping[str, list[list[CurvePoint]]]:
    """The curves alone, of the metrics that are named. Raises NotFound with the field of the id."""
    jobs = _found(session, caller, request.jobs)
    return _curves(
        session,
        jobs,
        [_series(session, each.id, request.metrics, request) for each in jobs],
        request.metrics,
        request.by,
    )


def _found(session: Session, caller: Caller, job_ids: Sequence[str]) -> list[Job]:
    found = []
    for place, job_id in enumerate(job_ids):
        try:
            found.append(lookup.find(session, caller, job_id))
        except NotFound as error:
            error.field = f"jobs.{place}"
            raise
    return found


def _compared(session: Session, found: Sequence[JobDetails]) -> list[ComparedJob]:
    attempts = history.newest_attempts(session, [each.job.id for each in found])
    names = {name for attempt in attempts.values() for name in attempt.node_names}
    rows = session.execute(select(Node.name, Node.version).where(Node.name.in_(names)))
    versions: dict[str, str] = {row.name: row.version for row in rows}
    running = gpu_hours.of_running(session, [each.job.id for each in found])
    compared = (_compared_job(session, each, attempts.get(each.job.id), versions) for each in found)
    return [replace(each, gpu_seconds=each.gpu_seconds + running.get(each.job.id, 0.0)) for each in compared]


def _compared_job(
    session: Session, details: JobDetails, attempt: Attempt | None, versions: Mapping[str, str]
) -> ComparedJob:
    job = details.job
    nodes = attempt.node_names if attempt is not None else []
    return ComparedJob(
        details=details,
        attempt=attempt,
        report=reports.completion_report(session, job) if job.state in TERMINAL else None,
        versions={name: versions[name] for name in nodes if versions.get(name)},
        gpu_seconds=job.gpu_seconds,
    )


def _document(details: JobDetails) -> dict[str, Any]:
    """What is compared: the document as shown, so with masked secrets; the name is shown with each job."""
    return {**{name: part for name, part in details.stored.items() if name != "name"}, "labels": details.job.labels}


def _selected(finals: Sequence[Mapping[str, float]], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """The metrics to compare, and those that are left out.

    First come those that all jobs have and losses, then those that most jobs have; those of the system are the last.
    """
    if wanted:
        return list(wanted), []
    counts = Counter(name for final in finals for name in final)

    def rank(name: str) -> tuple[bool, bool, int, tuple[int, int, str]]:
        is_first = counts[name] == len(finals) or "loss" in name.lower()
        return group_of(name) == "system", not is_first, -counts[name], order_of(name)

    ranked = sorted(counts, key=rank)
    return ranked[:MOST_METRICS], ranked[MOST_METRICS:]


def _series(
    session: Session, job_id: str, names: Sequence[str], request: ComparisonRequest
) -> dict[str, list[SeriesPoint]]:
    if not names or request.reads != "curves":  # without names all series would be read
        return {}
    most = min(request.max_points, max(FEWEST, MOST_POINTS // (len(request.jobs) * len(names))))
    return stored_metrics.series(session, job_id, names=names, max_points=most)


def _best(
    session: Session, compared: ComparedJob, name: str, points: Sequence[SeriesPoint], goal: Goal | None
) -> float | None:
    """Down-sampling keeps extremes, but a NaN hides those of its neighbours: then all points are read."""
    if goal is not None and any(not math.isfinite(point.value) for point in points):
        return stored_metrics.extreme(session, compared.job.id, name, greatest=goal == "maximize")
    final = compared.final.get(name)
    values = [point.value for point in points] or ([] if final is None else [final])
    return best_of(values, goal)


def _best_stored(session: Session, compared: ComparedJob, name: str, goal: Goal | None) -> float | None:
    """As the database finds it, without the curve."""
    if goal is None or name not in compared.final:
        return None
    found = stored_metrics.extreme(session, compared.job.id, name, greatest=goal == "maximize")
    return best_of([compared.final[name]], goal) if found is None else found


def _curves(
    session: Session,
    jobs: Sequence[Job],
    series: Sequence[Mapping[str, list[SeriesPoint]]],
    names: Sequence[str],
    by: Axis,
) -> dict[str, list[list[CurvePoint]]]:
    """The curves of each metric that has points."""
    tokens = [axes.tokens(session, each) if by == "tokens" else () for each in jobs]
    return {
        name: [_curve(each, found.get(name, []), by, of) for each, found, of in zip(jobs, series, tokens, strict=True)]
        for name in names
        if any(name in found for found in series)
    }


def _curve(job: Job, points: Sequence[SeriesPoint], by: Axis, tokens: Sequence[tuple[int, float]]) -> list[CurvePoint]:
    if by == "step":
        return [CurvePoint(point.step, point.value) for point in points]
    if by == "tokens":
        return [CurvePoint(_tokens_at(tokens, point.step), point.value) for point in points] if tokens else []
    started_at = job.started_at
    if started_at is None:
        return []
    found = [CurvePoint(round((point.at - started_at).total_seconds(), 3), point.value) for point in points]
    # After a resume, repeated steps are later than those that are still to be repeated.
    return sorted(found, key=lambda point: point.x)


def _tokens_at(tokens: Sequence[tuple[int, float]], step: int) -> float:
    """On the straight line between two steps of which the tokens are known; as many as at the last one after it."""
    place = bisect_left(tokens, (step, -math.inf))
    if place == len(tokens):
        return tokens[-1][1]
    (before, low), (after, high) = tokens[max(place - 1, 0)], tokens[place]
    share = (step - before) / (after - before) if after > before else 1.0
    return round((1 - share) * low + share * high, 1)  # finite where both are
