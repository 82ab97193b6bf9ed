"""Documents and rows of sweeps with sensible defaults."""

import copy
from typing import Any

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.names import DEFAULT_PROJECT
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TERMINAL, SweepState, TrialState
from app.models import Sweep, Trial
from app.models.base import utc_now
from app.models.insertion import fill
from tests.builders.factories import make_document, make_project

_DOCUMENT: dict[str, Any] = {
    "name": "search",
    "parameters": {
        "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-2, "scale": "log"},
        "weight_decay": {"type": "categorical", "values": [0.0, 0.1]},
    },
    "objective": {"metric": "eval_loss"},
    "method": {"name": "random", "seed": 1},
    "budget": {"max_trials": 4, "parallel_trials": 2},
}


def make_sweep_document(*, job: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A document of a sweep over `make_document`, with validation data; ``changes`` replace whole sections."""
    base = make_document(data_config={"validation_split": 0.1})
    del base["name"]
    return {**copy.deepcopy(_DOCUMENT), "job": job or base, **changes}


def make_sweep(
    session: Session, *, status: SweepState = SweepState.RUNNING, document: dict[str, Any] | None = None, **columns: Any
) -> Sweep:
    """A sweep without trials."""
    raw = document or make_sweep_document()
    make_project(session, columns.get("project", DEFAULT_PROJECT))
    session.flush()
    values: dict[str, Any] = {
        "id": new_id("sweep"),
        "project": DEFAULT_PROJECT,
        "created_by": "key-x",
        "submits_as": "key-x",
        "name": raw["name"],
        "spec": SweepSpec.from_json(raw).to_json(),
        "base": {"name": raw["name"], **raw["job"]},
        "status": status,
        "started_at": utc_now(),
        "finished_at": utc_now() if status in TERMINAL else None,
        **columns,
    }
    sweep = Sweep(**values)
    fill(sweep)
    session.add(sweep)
    session.flush()
    return sweep


def make_trial(session: Session, sweep: Sweep, *, state: TrialState = TrialState.COMPLETED, **columns: Any) -> Trial:
    """The next trial of a sweep, without a job; one that has ended was observed."""
    number = sweep.next_number
    has_ended = state is not TrialState.RUNNING
    if has_ended:
        sweep.seq += 1
    values: dict[str, Any] = {
        "sweep_id": sweep.id,
        "number": number,
        "source": "method",
        "values": {"learning_rate": 1e-3, "weight_decay": 0.0},
        "seed": 0,
        "seen_seq": 0,
        "state": state,
        "objectives": [1.0 / (number + 1)] if state in (TrialState.COMPLETED, TrialState.STOPPED) else None,
        "observed_seq": sweep.seq if has_ended else None,
        "finished_at": utc_now() if has_ended else None,
        **columns,
    }
    values.setdefault("value", values["objectives"][0] if values["objectives"] else None)
    trial = Trial(**values)
    fill(trial)
    sweep.next_number = number + 1
    session.add(trial)
    session.flush()
    return trial
