"""The best results of a sweep, on request with the document to train again with.

With `warm_start.count` results of earlier sweeps are among them, with numbers below 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps import pareto
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.observations import EarlierResult
from app.domain.sweeps.spec import SweepSpec
from app.models import Artifact, Job, Sweep, Trial
from app.services.attempts import artifacts
from app.services.jobs.reports import CompletionReport, completion_reports
from app.services.sweeps import warm_starts
from app.services.sweeps.observed import observations_of
from app.services.sweeps.reading.listing import TrialDetails, trial_details


@dataclass(frozen=True, kw_only=True)
class BestTrial(TrialDetails):
    """``document``: the job document of the trial with masked secrets; None unless asked for. ``report`` and
    ``artifacts``: of its job, the files of the model; None and empty unless asked for, and where the job was deleted.
    ``origin``: of an earlier result.
    """

    document: Mapping[str, Any] | None
    report: CompletionReport | None
    artifacts: Sequence[Artifact]
    origin: EarlierResult | None = None


def best(
    session: Session, sweep: Sweep, *, top: int, with_document: bool = False, with_results: bool = False
) -> list[BestTrial]:
    """The best results of one objective, best first; of several the Pareto front, by number."""
    spec = SweepSpec.from_json(sweep.spec)
    own = observations_of(session, sweep, spec, number=sweep.next_number, seen_seq=sweep.seq)
    known = sweep.known if spec.warm_start.count else []  # read only where it is needed
    earlier = {each.observation.number: each for each in warm_starts.counted(known, spec)}
    ranked = pareto.ranked([*(each.observation for each in earlier.values()), *own])[:top]
    details = {each.trial.number: each for each in _own(session, sweep, [each.number for each in ranked])}
    shown = []
    for each in ranked:
        origin = earlier.get(each.number)
        found = details[each.number] if origin is None else _earlier(session, sweep, spec, origin)
        shown.append((found, origin))
    jobs = [found.job for found, _ in shown if found.job is not None and found.job.state in TERMINAL]
    reports = {each.job_id: each for each in completion_reports(session, jobs if with_results else [])}
    models = artifacts.models_of(session, list(reports))
    return [
        BestTrial(
            trial=found.trial,
            job=found.job,
            reports=found.reports,
            document=_document(sweep, found.trial) if with_document else None,
            report=reports.get(found.trial.job_id or ""),
            artifacts=models.get(found.trial.job_id or "", ()),
            origin=origin,
        )
        for found, origin in shown
    ]


def _own(session: Session, sweep: Sweep, numbers: list[int]) -> list[TrialDetails]:
    rows = session.scalars(select(Trial).where(Trial.sweep_id == sweep.id, Trial.number.in_(numbers)))
    return trial_details(session, sweep.id, rows.all())


def _earlier(session: Session, sweep: Sweep, spec: SweepSpec, origin: EarlierResult) -> TrialDetails:
    """Without reports: those are of another sweep."""
    job = session.get(Job, origin.job_id) if origin.job_id else None
    return TrialDetails(trial=warm_starts.as_trial(sweep, spec, origin), job=job, reports=[])


def _document(sweep: Sweep, trial: Trial) -> dict[str, Any]:
    of = f"best-{trial.number}" if trial.number >= 0 else f"best-earlier-{-trial.number}"
    return trial_document(sweep.base, trial.values, name=f"{sweep.name[:110]}-{of}", labels=sweep.labels)
