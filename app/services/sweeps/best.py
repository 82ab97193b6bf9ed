"""The best trials of a sweep, on request with the document to train again with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.sweeps import pareto
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep, Trial
from app.services.sweeps.listing import TrialDetails, trial_details
from app.services.sweeps.observed import observations_of


@dataclass(frozen=True, kw_only=True)
class BestTrial(TrialDetails):
    """``document``: the job document of the trial with masked secrets; None unless asked for."""

    document: Mapping[str, Any] | None


def best(session: Session, sweep: Sweep, *, top: int, with_document: bool) -> list[BestTrial]:
    """The best trials of one objective, best first; of several the Pareto front, by number."""
    numbers = best_numbers(session, sweep, SweepSpec.from_json(sweep.spec), top=top)
    rows = session.scalars(select(Trial).where(Trial.sweep_id == sweep.id, Trial.number.in_(numbers)))
    by_number = {trial.number: trial for trial in rows}
    found = trial_details(session, sweep.id, [by_number[number] for number in numbers])
    return [
        BestTrial(
            trial=each.trial,
            job=each.job,
            reports=each.reports,
            document=_document(sweep, each.trial) if with_document else None,
        )
        for each in found
    ]


def best_numbers(session: Session, sweep: Sweep, spec: SweepSpec, *, top: int) -> list[int]:
    """Numbers of the best trials that break no constraint, best first; of several objectives the front, by number."""
    known = observations_of(session, sweep, spec, number=sweep.next_number, seen_seq=sweep.seq)
    return [each.number for each in pareto.ranked(known)[:top]]


def _document(sweep: Sweep, trial: Trial) -> dict[str, Any]:
    name = f"{sweep.name[:110]}-best-{trial.number}"
    return trial_document(sweep.base, trial.values, name=name, labels=sweep.labels)
