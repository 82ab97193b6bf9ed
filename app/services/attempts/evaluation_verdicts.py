"""Whether an evaluation met what its document requires: decided once, when it has completed."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec
from app.domain.evaluations import requirements
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.evaluations.requirements import Target
from app.domain.evaluations.results import Results
from app.domain.evaluations.rules import required_of
from app.domain.ids import JOB_ID
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import EVALUATION, TYPES, Benchmark
from app.domain.spec.model import JobDocument
from app.models import Job
from app.services.lifecycle import transitions

RESULTS, VERDICTS = "benchmarks", "requirements"  # of an evaluation's report
NOT_MET = "REQUIREMENT_NOT_MET"  # reason in the history of the evaluation


def judged(session: Session, job: Job, report: dict[str, Any]) -> dict[str, Any]:
    """The report of a job that completes, with the verdicts of an evaluation that requires something."""
    section = job.document.inference
    if job.kind != EVALUATION or section is None or not section.require:
        return report
    baselines = _results(session, job.project, {each.baseline for each in section.require if each.baseline})
    found = []
    for each in section.require:
        of = _target(each.metric, section.benchmarks)
        baseline = requirements.value_of(baselines.get(each.baseline or "", {}), of)
        found.append(requirements.verdict(each, of, report.get(RESULTS) or {}, baseline))
    return {**report, VERDICTS: found}


def note_not_met(session: Session, job: Job, *, actor: str) -> None:
    """Write into the history of a completed evaluation what it did not meet."""
    failed = [each for each in (job.report or {}).get(VERDICTS, ()) if not each["passed"]]
    if job.state is not JobState.COMPLETED or not failed:
        return
    message = "; ".join(map(requirements.sentence, failed))
    transitions.record_event(
        session, job.id, EventType.WARNING, actor=actor, reason=NOT_MET, message=message, data={VERDICTS: failed}
    )


def refuse_unknown_baselines(db: Database, project: str, document: JobDocument) -> None:
    """Raise BadSpec for a baseline that is no completed evaluation of the project with a finite value of the metric.

    For checked documents that are new: a retry, or a trial of a sweep, does again what was accepted. Where the baseline
    has been deleted since, the verdict says so.
    """
    baselines = list(_baselines(document))
    if not baselines:
        return
    with db.read() as session:
        results = _results(session, project, {baseline for _, baseline, _ in baselines})
    for field, baseline, of in baselines:
        value = requirements.value_of(results.get(baseline, {}), of)
        if not isinstance(value, int | float) or not math.isfinite(value):
            label, metric = of
            raise BadSpec(
                f"the project {project} has no completed evaluation {baseline[:64]} with a finite value of "
                f"{metric.name} of {label}; look for one with GET /v1/evaluations?status=COMPLETED",
                field=field,
            )


def _baselines(document: JobDocument) -> Iterator[tuple[str, str, Target]]:
    for field, required, benchmarks in required_of(document):
        for number, each in enumerate(required):
            if each.baseline is not None:
                yield f"{field}.{number}.baseline", each.baseline, requirements.target(each.metric, benchmarks)


def _target(metric: str, benchmarks: Sequence[Benchmark]) -> Target | None:
    """None for what an earlier version could measure."""
    try:
        return requirements.target(metric, benchmarks)
    except BadBenchmark:
        return None


def _results(session: Session, project: str, ids: Collection[str]) -> Mapping[str, Results]:
    """By ID, of those that are completed evaluations of the project."""
    known = [each for each in ids if JOB_ID.fullmatch(each)]
    if not known:
        return {}
    completed = (Job.project == project, Job.training_type == TYPES[EVALUATION], Job.status == JobState.COMPLETED)
    rows = session.execute(select(Job.id, Job.report).where(Job.id.in_(known), *completed))
    return {row.id: (row.report or {}).get(RESULTS) or {} for row in rows}


def verdicts_of(report: dict[str, Any] | None) -> Sequence[dict[str, Any]]:
    """The verdicts of a report; empty until its evaluation has completed."""
    found: Sequence[dict[str, Any]] = (report or {}).get(VERDICTS) or []
    return found
