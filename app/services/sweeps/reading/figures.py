"""Reads what the figures of a sweep show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from app.domain.errors import Conflict, InvalidRequest
from app.domain.suggestions import did_you_mean
from app.domain.sweeps import figures
from app.domain.sweeps.figures import (
    FEWEST_COMPLETED,
    Importance,
    ObjectiveHistory,
    Parallel,
    ParetoFront,
    Point,
    RungPoint,
    Rungs,
)
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Parameter
from app.domain.sweeps.promotions import halts
from app.domain.sweeps.rungs import rungs_of
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import NONE, PATIENCE, Objective, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Sweep, Trial, TrialReport
from app.services.sweeps.next_trial import space_of
from app.services.sweeps.search import importance

MOST_TRIALS = 10_000  # that are read, the first ones
MOST_REPORTS = 20_000
# A member that a fork has replaced is drawn as one that was stopped.
_DRAWN_AS = {
    TrialState.COMPLETED: TrialState.COMPLETED,
    TrialState.STOPPED: TrialState.STOPPED,
    TrialState.EXPLOITED: TrialState.STOPPED,
}

Measured = tuple[Point, Sequence[float]]  # the value of one objective, and all objectives as measured


@dataclass(frozen=True, kw_only=True)
class ImportanceQuestion:
    """What was read for `importance_of`, which takes seconds and needs no transaction."""

    space: Space
    objective: Objective | None
    completed: Sequence[Observation]

    @property
    def objectives(self) -> int:
        return len(self.completed[0].objectives)


def history(session: Session, sweep: Sweep, *, objective: str, max_points: int) -> ObjectiveHistory:
    """Raises InvalidRequest for an unknown objective, as all do that take one."""
    spec = SweepSpec.from_json(sweep.spec)
    place = _place(spec, objective, "objective")
    return figures.history(_points(session, sweep, spec, place), spec.objectives[place], most=max_points)


def parallel(session: Session, sweep: Sweep, *, objective: str, parameters: Sequence[str], max_points: int) -> Parallel:
    spec = SweepSpec.from_json(sweep.spec)
    place, chosen = _place(spec, objective, "objective"), _chosen(spec, parameters)
    return figures.parallel(_points(session, sweep, spec, place), spec.objectives[place], chosen, most=max_points)


def slices(
    session: Session, sweep: Sweep, *, objective: str, parameters: Sequence[str], max_points: int
) -> figures.Slices:
    spec = SweepSpec.from_json(sweep.spec)
    place, chosen = _place(spec, objective, "objective"), _chosen(spec, parameters)
    return figures.slices(_points(session, sweep, spec, place), spec.objectives[place], chosen, most=max_points)


def front(session: Session, sweep: Sweep, *, x: str, y: str, max_points: int) -> ParetoFront:
    """Raises InvalidRequest for a sweep of one objective, and for two axes that are one."""
    spec = SweepSpec.from_json(sweep.spec)
    if len(spec.objectives) == 1:
        raise InvalidRequest(
            f"the sweep has one objective, {spec.objectives[0].metric}, so its best trials have no front; "
            f"GET /v1/sweeps/{sweep.id}/best lists them, and figures/history shows its values"
        )
    across, up = _place(spec, x, "x"), _place(spec, y, "y", default=1)
    if across == up:
        raise InvalidRequest(f"{spec.objectives[up].metric} is the other axis, too; name another objective", field="y")
    return figures.front(_measured(session, sweep, spec, across), spec.objectives, across, up, most=max_points)


def rungs(session: Session, sweep: Sweep) -> Rungs:
    """Raises InvalidRequest for a sweep without early stopping. A population's rungs are its halts."""
    spec = SweepSpec.from_json(sweep.spec)
    rule, objective = spec.early_stopping, spec.objectives[0]
    if rule.name == NONE and not halts(spec):
        raise InvalidRequest(
            "the sweep has no rungs, because its early_stopping is none; figures/history shows the values of its trials"
        )
    counts = _counts(session, sweep.id)
    reports = _reports(session, sweep.id, sum(trials for trials, _ in counts.values()))
    # Patience and populations have many rungs, of which those are left out that no trial has come to.
    found = []
    for at in sorted({*counts, *(rungs_of(rule) if rule.name != PATIENCE else ())}):
        trials, continued = counts.get(at, (0, 0))
        is_last = rule.name != NONE and at >= rule.max
        found.append(
            figures.rung(at, reports.get(at, []), objective, trials=trials, continued=continued, is_last=is_last)
        )
    return Rungs(objective=objective, early_stopping=rule.name, unit=rule.unit, rungs=found)


def importance_question(
    session: Session, sweep: Sweep, *, objective: str, refuses_few: bool = True
) -> ImportanceQuestion:
    """By default of the only objective, or of the way to the Pareto front of several.

    With ``refuses_few`` it raises Conflict while too few trials have completed; else their answer has no parameters.
    """
    spec = SweepSpec.from_json(sweep.spec)
    is_front = not objective and len(spec.objectives) > 1
    place = _place(spec, objective, "objective")
    signs = [each.sign for each in spec.objectives]
    completed = [
        Observation(
            number=point.number,
            values=point.values,
            state="completed",
            objectives=tuple(map(mul, measured, signs)) if is_front else (signs[place] * point.value,),
        )
        for point, measured in _measured(session, sweep, spec, place)
        if point.state == TrialState.COMPLETED
    ]
    if refuses_few and len(completed) < FEWEST_COMPLETED:
        raise Conflict(
            f"importances need {FEWEST_COMPLETED} completed trials, and there are {len(completed)}; ask again when "
            "more have completed"
        )
    chosen = None if is_front else spec.objectives[place]
    return ImportanceQuestion(space=space_of(spec), objective=chosen, completed=completed)


def importance_of(asked: ImportanceQuestion) -> Importance:
    """Raises SearchUnavailable."""
    found: dict[str, float] = {}
    if len(asked.completed) >= FEWEST_COMPLETED:
        found = importance.answer(importance.question(asked.space, asked.completed, objectives=asked.objectives))
    values = [each.values for each in asked.completed]
    return figures.importance(found, asked.space.parameters, values, asked.objective)


def _place(spec: SweepSpec, metric: str, field: str, *, default: int = 0) -> int:
    """The place of an objective by its metric."""
    metrics = [each.metric for each in spec.objectives]
    if not metric:
        return default
    if metric not in metrics:
        known = f"{', '.join(metrics)}{did_you_mean(metric, metrics)}"
        raise InvalidRequest(f"{metric[:80]!r} is no objective of this sweep; known: {known}", field=field)
    return metrics.index(metric)


def _chosen(spec: SweepSpec, names: Sequence[str]) -> list[Parameter]:
    """The parameters with these names in this order; without names all, with those of `only_if` before the others.

    By name, because PostgreSQL does not keep the order of the document.
    """
    parameters = {each.name: each for each in Space.from_json(dict(sorted(spec.parameters.items()))).parameters}
    for name in names:
        if name not in parameters:
            known = f"{', '.join(parameters)}{did_you_mean(name, parameters)}"
            raise InvalidRequest(f"{name[:80]!r} is no parameter of this sweep; known: {known}", field="parameters")
    return [parameters[name] for name in dict.fromkeys(names or parameters)]


def _points(session: Session, sweep: Sweep, spec: SweepSpec, place: int) -> list[Point]:
    return [point for point, _ in _measured(session, sweep, spec, place)]


def _measured(session: Session, sweep: Sweep, spec: SweepSpec, place: int) -> list[Measured]:
    """Trials with a value of every objective, in the order of numbers."""
    columns = (Trial.number, Trial.state, Trial.values, Trial.objectives, Trial.violations)
    query = select(*columns).where(Trial.sweep_id == sweep.id, Trial.state.in_(_DRAWN_AS))
    return [
        (
            Point(
                number=row.number,
                state=_DRAWN_AS[row.state],
                value=row.objectives[place],
                values=row.values,
                is_feasible=not any(each > 0 for each in row.violations),
            ),
            row.objectives,
        )
        for row in session.execute(query.order_by(Trial.number).limit(MOST_TRIALS))
        if row.objectives is not None and len(row.objectives) == len(spec.objectives)
    ]


def _counts(session: Session, sweep_id: str) -> dict[int, tuple[int, int]]:
    """Rung → trials that have reported there, and how many of them continued."""
    continued = func.sum(case((TrialReport.continues, 1), else_=0))
    query = select(TrialReport.rung, func.count(), continued).where(TrialReport.sweep_id == sweep_id)
    return {rung: (trials, went) for rung, trials, went in session.execute(query.group_by(TrialReport.rung))}


def _reports(session: Session, sweep_id: str, count: int) -> Mapping[int, list[RungPoint]]:
    """By rung, in the order of trials; of very many those of every second, third … trial."""
    every = -(-count // MOST_REPORTS)
    query = select(TrialReport).where(TrialReport.sweep_id == sweep_id)
    if every > 1:
        query = query.where(TrialReport.number % every == 0)
    found: dict[int, list[RungPoint]] = {}
    for row in session.scalars(query.order_by(TrialReport.number, TrialReport.rung)):
        found.setdefault(row.rung, []).append(_report(row))
    return found


def _report(row: TrialReport) -> RungPoint:
    shown: dict[str, Any] = {
        name: getattr(row, name) for name in ("number", "rung", "value", "continues", "rank", "compared")
    }
    return RungPoint(**shown)
