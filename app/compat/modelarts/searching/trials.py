"""Trials of a sweep as rows of ModelArts' tables. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.compat.ids import uuid_of
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TRIAL_TERMINAL
from app.services.rows import Trial
from app.services.sweeps.reading.listing import TrialDetails


def trial_id(trial: Trial) -> str:
    """The id of its job, by which its log can be read; its number where it has none."""
    return uuid_of(trial.job_id) if trial.job_id else str(trial.number)


def header_of(spec: SweepSpec) -> list[str]:
    metrics = [each.metric for each in spec.objectives]
    return [
        *("done", "pid", "best_reward", "time_total_s", "config"),
        *metrics,
        *("trial_id", "training_iteration", "reward_attr"),
    ]


def table_of(spec: SweepSpec, names: Mapping[str, str], trials: Sequence[TrialDetails]) -> dict[str, Any]:
    """``names``: native names of parameters → those of the request; a number that there is not yet is empty text."""
    return {"header": header_of(spec), "data": [_row(spec, names, each) for each in trials]}


def _row(spec: SweepSpec, names: Mapping[str, str], found: TrialDetails) -> list[str]:
    trial, job = found.trial, found.job
    values = [str(each) for each in trial.objectives or ()] or [""] * len(spec.objectives)
    config = {names.get(name, name): value for name, value in trial.values.items()}
    step = trial.step or (job.current_step if job is not None else 0)
    return [
        str(trial.state in TRIAL_TERMINAL),
        str(trial.number),
        values[0],
        str(round(job.elapsed_seconds, 3)) if job is not None else "0",
        json.dumps(config, sort_keys=True, ensure_ascii=False),
        *values,
        trial_id(trial),
        str(step),
        values[0],
    ]
