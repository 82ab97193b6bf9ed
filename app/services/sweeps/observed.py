"""What a method knows when it is asked for a trial: earlier trials as of a number of the sweep's `seq`.

A pure function of stored rows, so that every coordinator, and a replay, gives the method the same.
"""

from operator import mul

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.sweeps.observations import Observation, State
from app.domain.sweeps.spec import GRID, RANDOM, SOBOL, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Sweep, Trial

_STATES: dict[str, State] = {
    TrialState.COMPLETED: "completed",
    TrialState.STOPPED: "stopped",
    TrialState.FAILED: "failed",
}
_COLUMNS = (Trial.number, Trial.values, Trial.state, Trial.objectives, Trial.violations, Trial.step, Trial.observed_seq)


def known_to_method(
    session: Session, sweep: Sweep, spec: SweepSpec, *, number: int, seen_seq: int
) -> list[Observation]:
    """What the sweep's method is given of the trials below ``number``: nothing, if it learns nothing from them."""
    if spec.method.name in (GRID, RANDOM, SOBOL):
        return []
    earlier = [Observation.from_json(raw) for raw in sweep.known]
    return [*earlier, *observations_of(session, sweep, spec, number=number, seen_seq=seen_seq)]


def observations_of(
    session: Session, sweep: Sweep, spec: SweepSpec, *, number: int, seen_seq: int
) -> list[Observation]:
    """All trials below ``number``, in the order of numbers; those that ended after ``seen_seq`` were still running."""
    query = select(*_COLUMNS).where(Trial.sweep_id == sweep.id, Trial.number < number).order_by(Trial.number)
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
