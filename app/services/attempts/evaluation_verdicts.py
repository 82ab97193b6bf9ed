"""Whether an evaluation met what its document requires: decided once, when it has completed."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec
from app.domain.evaluations import requirements
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.evaluations.requirements import Target, Value
from app.domain.evaluations.rules import required_of
from app.domain.ids import JOB_ID
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import EVALUATION, Benchmark
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
    found = []
    for each in section.require:
        of = _target(each.metric, section.benchmarks)
        baseline = _value(session, job.project, each.baseline, of) if each.baseline is not None else None
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


def refuse_unknown_baselines(session: Session, project: str, document: JobDocument) -> None:
    """Raise BadSpec for a baseline that is no completed evaluation of the project, or has not measured the metric."""
    for field, baseline, of in _baselines(document):
        if _value(session, project, baseline, of) is None:
            label, metric = of
            raise BadSpec(
                f"the project {project} has no completed evaluation {baseline[:64]} that has measured {metric.name} of "
                f"{label}; look for one with GET /v1/evaluations?status=COMPLETED",
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


def _value(session: Session, project: str, baseline: str, of: Target | None) -> Value:
    """What the evaluation has measured; None where it is missing."""
    job = session.get(Job, baseline) if JOB_ID.fullmatch(baseline) else None
    if job is None or job.project != project or job.kind != EVALUATION:
        return None
    return requirements.value_of((job.report or {}).get(RESULTS) or {}, of)


def shown(report: dict[str, Any] | None) -> Sequence[dict[str, Any]]:
    """The verdicts of a report; empty until its evaluation has completed."""
    found: Sequence[dict[str, Any]] = (report or {}).get(VERDICTS) or []
    return found
