"""Makes each decision about a halted trial again, from the reports that it rested on."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.errors import Conflict
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.promotions import Ladder, waits
from app.domain.sweeps.rungs import RungReport
from app.domain.sweeps.spec import PBT, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Sweep, SweepEvent, Trial, TrialReport
from app.services.sweeps import rung_reports

Decision = tuple[bool, int, int]  # continues, rank, of
_Key = tuple[int, int]  # number, rung
_Event = tuple[int, TrialReport]


def replayed(
    spec: SweepSpec, reports: Sequence[TrialReport], trials: Mapping[int, Trial], by_hand: AbstractSet[_Key]
) -> dict[_Key, Decision]:
    """By number and rung the decisions that were made later than their reports were recorded.

    A trial continues if it was the next in line. Which of the others end, and when, also depends on the budget: an end
    is replayed as such, with its rank. ``by_hand`` are the continuations that a person asked for.
    """
    found: dict[_Key, Decision] = {}
    if not waits(spec) or spec.method.name == PBT:
        return found
    ladder = Ladder(spec.early_stopping)
    completed = sorted(
        each.observed_seq for each in trials.values() if each.state == TrialState.COMPLETED and each.observed_seq
    )
    for seq, report in _events(reports):
        trial = trials[report.number]
        mine = rung_reports.as_judged(spec, report, trial.bracket)
        is_by_hand = (report.number, report.rung) in by_hand
        is_in_line = report.decided_seq != report.seq and not (is_by_hand or _has_ended(trial, report))
        if seq == report.seq:
            ladder.add(mine, waits=is_in_line)
            continue
        standing = ladder.standing(mine)
        has_completed = bool(completed) and completed[0] < seq
        continues = report.continues and (is_by_hand or _is_next(ladder, mine, has_completed=has_completed))
        found[(report.number, report.rung)] = (continues, standing.rank, standing.of)
        if is_in_line:
            ladder.decide(mine)
    return found


def continued_by_hand(session: Session, sweep: Sweep, spec: SweepSpec, trials: Mapping[int, Trial]) -> set[_Key]:
    """Number and rung of the reports at which a person let a halted trial continue, from the sweep's events.

    That its trial is exempt is recorded once, and before such a decision; a trial that is exempt waits no more. Raises
    Conflict where retention has deleted the events.
    """
    is_population = spec.method.name == PBT  # `replayed` makes no decision of one again
    if not waits(spec) or is_population or not any(trial.promoted for trial in trials.values()):
        return set()
    _require_events(session, sweep)
    kinds = (SweepEventType.CHANGED, SweepEventType.TRIAL_REPORTED)
    query = select(SweepEvent.type, SweepEvent.reason, SweepEvent.data).where(
        SweepEvent.sweep_id == sweep.id, SweepEvent.type.in_(kinds)
    )
    waits_at: dict[int, int] = {}
    found: set[_Key] = set()
    for kind, reason, data in session.execute(query.order_by(SweepEvent.seq)):
        number = data.get("number")
        if kind == SweepEventType.TRIAL_REPORTED and reason == "waits":
            waits_at[number] = data["rung"]
        elif kind == SweepEventType.TRIAL_REPORTED:
            waits_at.pop(number, None)
        elif set(data) == {"number"} and number in waits_at and trials[number].promoted:
            found.add((number, waits_at[number]))
    return found


def _require_events(session: Session, sweep: Sweep) -> None:
    """Events are numbered without gaps; of a sweep that continues after its history was deleted some are missing."""
    stored = select(func.count()).select_from(SweepEvent).where(SweepEvent.sweep_id == sweep.id)
    if session.scalar(stored) != sweep.event_seq:
        raise Conflict(
            f"sweep {sweep.id} can't be replayed: a person exempted trials from early stopping, and the history that "
            "says where was deleted (TRAINYARD_RETENTION_EVENTS_DAYS)"
        )


def _events(reports: Sequence[TrialReport]) -> Iterator[_Event]:
    """Reports and later decisions, in the order in which they were recorded."""
    recorded = [(each.seq, each) for each in reports]
    decided = [(each.decided_seq, each) for each in reports if each.decided_seq not in (None, each.seq)]
    yield from sorted([*recorded, *decided], key=lambda event: event[0] or 0)


def _has_ended(trial: Trial, report: TrialReport) -> bool:
    """Whether its trial's end decided instead of the sweep: it was stopped or cancelled by hand."""
    is_decided = report.decided_seq is not None
    return is_decided and not report.continues and report.decided_seq == trial.observed_seq


def _is_next(ladder: Ladder, mine: RungReport, *, has_completed: bool) -> bool:
    """While a trial has earned it, it continues; else the best of a rung, or the best of all if none has completed."""
    earned = ladder.first()
    if earned is not None:
        return earned.report == mine
    last = (ladder.first(least=1), None if has_completed else ladder.best())
    return any(each is not None and each.report == mine for each in last)
