"""What a method knows when it is asked for a trial: earlier trials as of a number of the sweep's `seq`.

A pure function of stored rows, so that every coordinator, and a replay, gives the method the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import mul
from typing import Any

from sqlalchemy import Row, select
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
_COLUMNS = (
    *(Trial.number, Trial.values, Trial.state, Trial.objectives, Trial.violations, Trial.step, Trial.observed_seq),
    Trial.error_type,
)
_REPORT_COLUMNS: tuple[Any, ...] = (TrialReport.number, TrialReport.rung, TrialReport.value, TrialReport.seq)


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


class KnownTrials:
    """The same for many trials: rows are read once, and an observation is made once for each state of its trial."""

    def __init__(self, session: Session, sweep: Sweep, spec: SweepSpec) -> None:
        self._spec, self._made = spec, dict[tuple[int, bool], Observation | None]()
        self._earlier = [Observation.from_json(raw) for raw in sweep.known] if learns(spec) else []
        self._trials = _trials(session, sweep, since=0, number=sweep.next_number) if learns(spec) else []
        self._reports = _reports(session, sweep, seen_seq=sweep.seq) if spec.method.name == BOHB else []

    def of(self, trial: Trial) -> list[Observation]:
        """What the method knew when it suggested this trial."""
        own = [self._observed(row, trial.seen_seq) for row in self._trials[: trial.number]]
        found = [each for each in own if each is not None]
        if self._spec.method.name == BOHB:
            found = _with_reports(self._spec, found, [row for row in self._reports if row.seq <= trial.seen_seq])
        return [*self._earlier, *found]

    def _observed(self, row: Row[Any], seen_seq: int) -> Observation | None:
        key = (row.number, _has_ended(row, seen_seq))
        if key not in self._made:
            self._made[key] = _observation(self._spec, row, seen_seq)
        return self._made[key]


def observations_of(
    session: Session, sweep: Sweep, spec: SweepSpec, *, number: int, seen_seq: int, since: int = 0
) -> list[Observation]:
    """The trials from ``since`` on and below ``number``, in this order; those that ended after ``seen_seq`` were still
    running.
    """
    found = (_observation(spec, row, seen_seq) for row in _trials(session, sweep, since=since, number=number))
    return [each for each in found if each is not None]


def with_reports(
    session: Session, sweep: Sweep, spec: SweepSpec, observations: Sequence[Observation], *, seen_seq: int
) -> list[Observation]:
    """The trials with their finite values at rungs up to ``seen_seq``, also of those that run."""
    return _with_reports(spec, observations, _reports(session, sweep, seen_seq=seen_seq))


def _trials(session: Session, sweep: Sweep, *, since: int, number: int) -> Sequence[Row[Any]]:
    query = select(*_COLUMNS).where(Trial.sweep_id == sweep.id, Trial.number >= since, Trial.number < number)
    return session.execute(query.order_by(Trial.number)).all()


def _has_ended(row: Row[Any], seen_seq: int) -> bool:
    return row.observed_seq is not None and row.observed_seq <= seen_seq


def _observation(spec: SweepSpec, row: Row[Any], seen_seq: int) -> Observation | None:
    """None for one that a person ended, which says nothing of its values."""
    has_ended = _has_ended(row, seen_seq)
    if has_ended and row.state == TrialState.CANCELLED:
        return None
    state: State = "running"
    if has_ended:
        state = _STATES[row.state]
    objectives = row.objectives if state in ("completed", "stopped") else None
    if objectives is None and state in ("completed", "stopped"):
        state = "failed"  # it measured nothing before it was stopped, or nothing finite, which its error type says
    return Observation(
        number=row.number,
        values=row.values,
        state=state,
        objectives=tuple(map(mul, objectives or (), (objective.sign for objective in spec.objectives))),
        step=row.step if state != "running" else 0,
        violations=tuple(row.violations) if state == "completed" else (),
        cause=(row.error_type or "") if state == "failed" else "",
    )


def _reports(session: Session, sweep: Sweep, *, seen_seq: int) -> Sequence[Row[Any]]:
    query = (
        select(*_REPORT_COLUMNS)
        .where(TrialReport.sweep_id == sweep.id, TrialReport.seq <= seen_seq, TrialReport.value.is_not(None))
        .order_by(TrialReport.number, TrialReport.rung)
    )
    return session.execute(query).all()


def _with_reports(
    spec: SweepSpec, observations: Sequence[Observation], reports: Sequence[Row[Any]]
) -> list[Observation]:
    sign, by_number = spec.objectives[0].sign, dict[int, list[tuple[int, float]]]()
    for row in reports:
        by_number.setdefault(row.number, []).append((row.rung, sign * row.value))
    return [replace(each, reports=tuple(by_number.get(each.number, ()))) for each in observations]


def best_numbers(session: Session, sweep: Sweep, spec: SweepSpec, *, top: int) -> list[int]:
    """Numbers of the sweep's own best trials that break no constraint, best first; of several objectives the front, by
    number.
    """
    known = observations_of(session, sweep, spec, number=sweep.next_number, seen_seq=sweep.seq)
    return [each.number for each in pareto.ranked(known)[:top]]
