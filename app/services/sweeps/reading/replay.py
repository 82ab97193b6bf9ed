"""Computes every suggestion and every decision of a sweep again from what is stored, and compares."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec
from app.domain.sweeps.rungs import RungReport, judge
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep, Trial, TrialReport
from app.services.sweeps import rung_reports
from app.services.sweeps.forking import replaying as populations
from app.services.sweeps.halting import replaying
from app.services.sweeps.next_trial import Suggests, space_of
from app.services.sweeps.observed import KnownTrials, learns

# Of one request. A method that learns reads every earlier trial for each suggestion: so many in all.
MOST_TRIALS, MOST_READ = 2_000, 4_000_000
# Of a part whose end the request leaves open: well below the 30 seconds for which clients wait.
PART_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class ReplayDifference:
    """What a replay found otherwise than it is stored."""

    what: str  # suggestion, decision
    number: int
    rung: int | None
    stored: Any
    replayed: Any


@dataclass(frozen=True, kw_only=True)
class SweepReplay:
    """Of the trials ``numbers``; ``next_number`` is the first one after them, None if there is none."""

    suggestions: int
    decisions: int
    differences: list[ReplayDifference]
    numbers: range
    next_number: int | None


@dataclass(frozen=True, kw_only=True)
class StoredSweep:
    """What a replay of the trials ``numbers`` rests on; ``known`` says what the method knew of earlier ones.

    ``is_open``: the part may end with an earlier trial, because its request named only the first.
    ``by_hand``: number and rung of the reports at which a person let a halted trial continue.
    """

    spec: SweepSpec
    numbers: range
    is_open: bool
    known: KnownTrials
    reports: Sequence[TrialReport]
    trials: Mapping[int, Trial]
    by_hand: AbstractSet[tuple[int, int]]


def read(session: Session, sweep: Sweep, *, first: int | None = None, last: int | None = None) -> StoredSweep:
    """Everything of the sweep, for a replay of the trials from ``first`` to ``last``: by default all, with ``first``
    alone as many as one request computes, in about PART_SECONDS.

    Raises BadSpec for more than that, and for numbers that the sweep does not have, Conflict where a part of what it
    needs was deleted.
    """
    spec = SweepSpec.from_json(sweep.spec)
    numbers = part(sweep.next_number, first, last, is_learning=learns(spec))
    rows = session.scalars(select(Trial).where(Trial.sweep_id == sweep.id).order_by(Trial.number)).all()
    reports = select(TrialReport).where(TrialReport.sweep_id == sweep.id).order_by(TrialReport.seq)
    trials = {row.number: row for row in rows}
    return StoredSweep(
        spec=spec,
        numbers=numbers,
        is_open=first is not None and last is None,
        known=KnownTrials(session, sweep, spec),
        reports=session.scalars(reports).all(),
        trials=trials,
        by_hand=replaying.continued_by_hand(session, sweep, spec, trials),
    )


def part(made: int, first: int | None, last: int | None, *, is_learning: bool) -> range:
    """The trials of a request, of a sweep that has ``made`` so many. Raises BadSpec."""
    start = first or 0
    if start >= made > 0:
        raise BadSpec(f"the sweep has {made} trials; the last one is {made - 1}", field="from")
    if last is not None and last < start:
        raise BadSpec(f"must be {start} or more, the first trial", field="to")
    most = MOST_TRIALS
    if is_learning:  # the most trials whose count times the number of the last one is within the limit
        most = min(most, (math.isqrt(start * start + 4 * MOST_READ) - start) // 2)
    end = made if last is None else min(last + 1, made)
    if end - start <= most:
        return range(start, max(start, end))
    if first is not None and last is None:
        return range(start, start + most)
    raise BadSpec(
        f"these are {end - start} trials, and one request computes up to {most:,} from trial {start} on; ask for a "
        "part by from and to, or by from alone and then by the next_from of each answer",
        field="from" if last is None else "to",
    )


def replay(stored: StoredSweep, suggestions: Suggests) -> SweepReplay:
    """Trials whose values the document or a person chose have no suggestion, and are not counted.

    An open part ends with the first trial that was suggested after PART_SECONDS.
    """
    deadline = time.monotonic() + PART_SECONDS if stored.is_open else math.inf
    suggested = [
        (place, trial)
        for place, trial in enumerate(each for each in stored.trials.values() if each.source == "method")
        if trial.number in stored.numbers
    ]
    differing, done = _suggestions(stored, suggested, suggestions, deadline)
    if done < len(suggested):
        stored = replace(stored, numbers=range(stored.numbers.start, suggested[done][1].number))
    forks = [
        each
        for each in populations.forks(stored.spec, space_of(stored.spec), stored.reports, stored.trials)
        if each.trial.number in stored.numbers
    ]
    decided = [report for report in stored.reports if report.number in stored.numbers]
    end = stored.numbers.stop
    return SweepReplay(
        suggestions=done + len(forks),
        decisions=len(decided),
        differences=[*differing, *_decisions(stored), *_forks(forks)],
        numbers=stored.numbers,
        next_number=end if end < len(stored.trials) else None,
    )


def _suggestions(
    stored: StoredSweep, suggested: Sequence[tuple[int, Trial]], suggestions: Suggests, deadline: float
) -> tuple[list[ReplayDifference], int]:
    """The differences, and how many trials were computed until the deadline, of the monotonic clock: at least one.

    ``suggested``: trials with their places among those that the method suggested.
    """
    space, differing = space_of(stored.spec), list[ReplayDifference]()
    for done, (place, trial) in enumerate(suggested):
        if done and time.monotonic() > deadline:
            return differing, done
        known = stored.known.of(trial)
        found = suggestions.suggest(stored.spec, space, number=trial.number, place=place, observations=known)
        if found.values != trial.values:
            difference = ReplayDifference(
                what="suggestion", number=trial.number, rung=None, stored=trial.values, replayed=found.values
            )
            differing.append(difference)
    return differing, len(suggested)


def _forks(found: Sequence[populations.ReplayedFork]) -> Iterator[ReplayDifference]:
    """Forks of a population that have another winner, or other values."""
    for each in found:
        trial = each.trial
        if trial.parent_number != each.winner:
            yield ReplayDifference(
                what="decision",
                number=trial.number,
                rung=trial.fork_step,
                stored=trial.parent_number,
                replayed=each.winner,
            )
        elif trial.values != each.values:
            yield ReplayDifference(
                what="suggestion", number=trial.number, rung=None, stored=trial.values, replayed=dict(each.values)
            )


def _decisions(stored: StoredSweep) -> Iterator[ReplayDifference]:
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
        before = of_rung.setdefault(mine.rung, [])
        is_computed = report.decided_seq is not None and report.number in stored.numbers
        verdict = judge(stored.spec.early_stopping, mine, [*before, *own]) if is_computed else None
        before.append(mine)
        of_trial.setdefault(mine.number, []).append(mine)
        if verdict is None:
            continue
        continues = trial.promoted or rung_reports.decided_at_once(stored.spec, report, verdict)
        replayed = waited.get((report.number, report.rung), (continues, verdict.rank, verdict.of))
        found = (report.continues, report.rank, report.compared)
        if replayed != found:
            yield ReplayDifference(
                what="decision", number=report.number, rung=report.rung, stored=list(found), replayed=list(replayed)
            )
