"""What a method knows when it is asked for a trial: earlier trials as of a number of the sweep's `seq`.

A pure function of stored rows, so that every coordinator, and a replay, gives the method the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import mul

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.sweeps import pareto
from app.domain.sweeps.observations import Observation, State
from app.domain.sweeps.spec import BOHB, GRID, PBT, RANDOM, SOBOL, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Sweep, Trial, TrialReport

_STATES: dict[str, State] = {
    TrialState.COMPLETED: "completed",
    TrialState.STOPPED: "stopped",
    TrialState.EXPLOITED: "stopped",
    TrialState.FAILED: "failed",
}
_COLUMNS = (Trial.number, Trial.values, Trial.state, Trial.objectives, Trial.violations, Trial.step, Trial.observed_seq)


def learns(spec: SweepSpec) -> bool:
    """Whether the method's suggestions depend on earlier trials."""
    return spec.method.name not in (GRID, RANDOM, SOBOL, PBT)


def known_to_method(
    session: Session, sweep: Sweep, spec: SweepSpec, *, number: int, seen_seq: int
) -> list[Observation]:
    """What the sweep's method is given of the trials below ``number``: nothing, if it learns nothing from them."""
    if not learns(spec):
        return []
    earlier = [Observation.from_json(raw) for raw in sweep.known]
    found = observations_of(session, sweep, spec, number=number, seen_seq=seen_seq)
    if spec.method.name == BOHB:
        found = with_reports(session, sweep, spec, found, seen_seq=seen_seq)
    return [*earlier, *found]


def observations_of(
    session: Session, sweep: Sweep, spec: SweepSpec, *, number: int, seen_seq: int, since: int = 0
) -> list[Observation]:
    """The trials from ``since`` on and below ``number``, in this order; those that ended after ``seen_seq`` were still
    running.
    """
    query = select(*_COLUMNS).where(Trial.sweep_id == sweep.id, Trial.number >= since, Trial.number < number)
    query = query.order_by(Trial.number)
    signs = [objective.sign for objective in spec.objectives]
    found = []
    for row in session.execute(query):
        has_ended = row.observed_seq is not None and row.observed_seq <= seen_seq
        if has_ended and row.state == TrialState.CANCELLED:
            continue  # a person ended it, which says nothing of its values
        state: State = "running"
        if has_ended:
            state = _STATES[row.state]
        objectives = row.objectives if state in ("completed", "stopped") else None
        if objectives is None and state in ("completed", "stopped"):
            state = "failed"  # it measured nothing before it was stopped
        found.append(
            Observation(
                number=row.number,
                values=row.values,
                state=state,
                objectives=tuple(map(mul, objectives or (), signs)),
                step=row.step if state != "running" else 0,
                violations=tuple(row.violations) if state == "completed" else (),
            )
        )
    return found


def with_reports(
    session: Session, sweep: Sweep, spec: SweepSpec, observations: Sequence[Observation], *, seen_seq: int
) -> list[Observation]:
    """The trials with their finite values at rungs up to ``seen_seq``, also of those that run."""
    query = (
        select(TrialReport.number, TrialReport.rung, TrialReport.value)
        .where(TrialReport.sweep_id == sweep.id, TrialReport.seq <= seen_seq, TrialReport.value.is_not(None))
        .order_by(TrialReport.number, TrialReport.rung)
    )
    sign, by_number = spec.objectives[0].sign, dict[int, list[tuple[int, float]]]()
    for row in session.execute(query):
        by_number.setdefault(row.number, []).append((row.rung, sign * row.value))
    return [replace(each, reports=tuple(by_number.get(each.number, ()))) for each in observations]


def best_numbers(session: Session, sweep: Sweep, spec: SweepSpec, *, top: int) -> list[int]:
    """Numbers of the sweep's own best trials that break no constraint, best first; of several objectives the front, by
    number.
    """
    known = observations_of(session, sweep, spec, number=sweep.next_number, seen_seq=sweep.seq)
    return [each.number for each in pareto.ranked(known)[:top]]
