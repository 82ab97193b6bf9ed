"""Computes every suggestion and every decision of a sweep again from what is stored, and compares."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.rungs import RungReport, judge
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep, Trial, TrialReport
from app.services.sweeps import rung_reports
from app.services.sweeps.forking import replaying as populations
from app.services.sweeps.halting import replaying
from app.services.sweeps.launching import Suggests, space_of
from app.services.sweeps.observed import known_to_method

MOST_TRIALS = 2_000


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


@dataclass(frozen=True, kw_only=True)
class StoredSweep:
    """What a replay rests on; ``suggested`` has, for each trial of the method, what the method knew.

    ``by_hand``: number and rung of the reports at which a person let a halted trial continue.
    """

    spec: SweepSpec
    suggested: Sequence[tuple[Trial, Sequence[Observation]]]
    reports: Sequence[TrialReport]
    trials: Mapping[int, Trial]
    by_hand: AbstractSet[tuple[int, int]]


def read(session: Session, sweep: Sweep) -> StoredSweep:
    """Everything of the sweep. Raises BadSpec for one with more trials than a request may compute again."""
    if sweep.next_number > MOST_TRIALS:
        raise BadSpec(
            f"the sweep has {sweep.next_number} trials; a replay computes those of sweeps with up to {MOST_TRIALS:,}"
        )
    spec = SweepSpec.from_json(sweep.spec)
    rows = session.scalars(select(Trial).where(Trial.sweep_id == sweep.id).order_by(Trial.number)).all()
    reports = select(TrialReport).where(TrialReport.sweep_id == sweep.id).order_by(TrialReport.seq)
    trials = {row.number: row for row in rows}
    return StoredSweep(
        spec=spec,
        suggested=[
            (row, known_to_method(session, sweep, spec, number=row.number, seen_seq=row.seen_seq))
            for row in rows
            if row.source == "method"
        ],
        reports=session.scalars(reports).all(),
        trials=trials,
        by_hand=replaying.continued_by_hand(session, sweep.id, trials),
    )


def replay(stored: StoredSweep, suggestions: Suggests) -> Replay:
    """Trials whose values the document or a person chose have no suggestion, and are not counted."""
    forks = [*populations.forks(stored.spec, space_of(stored.spec), stored.reports, stored.trials)]
    differences = [*_suggestions(stored, suggestions), *_decisions(stored), *_forks(forks)]
    suggested = len(stored.suggested) + len(forks)
    return Replay(suggestions=suggested, decisions=len(stored.reports), differences=differences)


def _suggestions(stored: StoredSweep, suggestions: Suggests) -> Iterator[Difference]:
    space = space_of(stored.spec)
    for place, (trial, known) in enumerate(stored.suggested):
        found = suggestions.suggest(stored.spec, space, number=trial.number, place=place, observations=known)
        if found.values != trial.values:
            yield Difference(
                what="suggestion", number=trial.number, rung=None, stored=trial.values, replayed=found.values
            )


def _forks(found: Sequence[populations.ReplayedFork]) -> Iterator[Difference]:
    """Forks of a population that have another winner, or other values."""
    for each in found:
        trial = each.trial
        if trial.parent_number != each.winner:
            yield Difference(
                what="decision",
                number=trial.number,
                rung=trial.fork_step,
                stored=trial.parent_number,
                replayed=each.winner,
            )
        elif trial.values != each.values:
            yield Difference(
                what="suggestion", number=trial.number, rung=None, stored=trial.values, replayed=dict(each.values)
            )


def _decisions(stored: StoredSweep) -> Iterator[Difference]:
    """Each report is judged by the earlier ones of its rung, and by its trial's own; one that waited, by all that were
    there when its sweep decided.
    """
    of_rung: dict[int, list[RungReport]] = {}
    of_trial: dict[int, list[RungReport]] = {}
    waited = replaying.replayed(stored.spec, stored.reports, stored.trials, stored.by_hand)
    waited |= populations.decisions(stored.spec, stored.reports, stored.trials)
    for report in stored.reports:
        trial = stored.trials[report.number]
        mine = rung_reports.as_judged(stored.spec, report, trial.bracket)
        own = [each for each in of_trial.get(mine.number, ()) if each.rung != mine.rung]
        verdict = judge(stored.spec.early_stopping, mine, [*of_rung.get(mine.rung, ()), *own])
        of_rung.setdefault(mine.rung, []).append(mine)
        of_trial.setdefault(mine.number, []).append(mine)
        if report.decided_seq is None:
            continue
        continues = trial.promoted or rung_reports.decided_at_once(stored.spec, report, verdict)
        replayed = waited.get((report.number, report.rung), (continues, verdict.rank, verdict.of))
        found = (report.continues, report.rank, report.compared)
        if replayed != found:
            yield Difference(
                what="decision", number=report.number, rung=report.rung, stored=list(found), replayed=list(replayed)
            )
