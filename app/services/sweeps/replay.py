"""Computes every suggestion and every decision of a sweep again from what is stored, and compares."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.sweeps.rungs import judge
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep, Trial, TrialReport
from app.services.sweeps import rung_reports
from app.services.sweeps.launching import Suggests, space_of
from app.services.sweeps.observed import known_to_method


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What a replay found otherwise than it is stored."""

    what: str  # suggestion, decision
    number: int
    rung: int | None
    stored: Any
    replayed: Any


@dataclass(frozen=True, kw_only=True)
class Replay:
    suggestions: int
    decisions: int
    differences: list[Difference]


def replay(session: Session, suggestions: Suggests, sweep: Sweep) -> Replay:
    """Trials whose values the document or a person chose have no suggestion, and are not counted."""
    spec = SweepSpec.from_json(sweep.spec)
    made = session.scalars(
        select(Trial).where(Trial.sweep_id == sweep.id, Trial.source == "method").order_by(Trial.number)
    ).all()
    reports = session.scalars(
        select(TrialReport).where(TrialReport.sweep_id == sweep.id).order_by(TrialReport.seq)
    ).all()
    differences = [*_suggestions(session, suggestions, sweep, spec, made), *_decisions(session, sweep, spec, reports)]
    return Replay(suggestions=len(made), decisions=len(reports), differences=differences)


def _suggestions(
    session: Session, suggestions: Suggests, sweep: Sweep, spec: SweepSpec, made: Sequence[Trial]
) -> Iterator[Difference]:
    space = space_of(spec)
    for place, trial in enumerate(made):
        known = known_to_method(session, sweep, spec, number=trial.number, seen_seq=trial.seen_seq)
        found = suggestions.suggest(spec, space, number=trial.number, place=place, observations=known)
        if found.values != trial.values:
            yield Difference(
                what="suggestion", number=trial.number, rung=None, stored=trial.values, replayed=found.values
            )


def _decisions(session: Session, sweep: Sweep, spec: SweepSpec, reports: Sequence[TrialReport]) -> Iterator[Difference]:
    rows = session.execute(select(Trial.number, Trial.bracket, Trial.promoted).where(Trial.sweep_id == sweep.id))
    of = {row.number: row for row in rows}
    for report in reports:
        trial = of[report.number]
        mine = rung_reports.as_judged(spec, report, trial.bracket)
        verdict = judge(spec.early_stopping, mine, rung_reports.compared(session, spec, report))
        replayed = (verdict.continues or trial.promoted, verdict.rank, verdict.of)
        stored = (report.continues, report.rank, report.compared)
        if replayed[1:] != stored[1:] or (replayed[0] != stored[0] and not trial.promoted):
            yield Difference(
                what="decision", number=report.number, rung=report.rung, stored=list(stored), replayed=list(replayed)
            )
