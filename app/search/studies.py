"""A question as a study of Optuna: a new one in memory for each draw, so that nothing outlasts an answer.

Observations are its trials: completed ones are COMPLETE, stopped ones PRUNED with the value of their last report,
running ones RUNNING, which the constant liar of TPE avoids. Failed ones are left out, as samplers do.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import cast

from optuna import Study, create_study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space
from app.search.distributions import distribution_of, distributions_of, value_of
from app.search.question import Question

_STATES = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "running": TrialState.RUNNING}


class _History(InMemoryStorage):
    """Holds the trials of observations beside the one that is asked for, which has the number 0.

    Adding them to a study copies each deeply: 2 s for 10,000 of them.
    """

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._earlier = trials

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,  # noqa: FBT001, FBT002 – Optuna's signature
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        earlier = [trial for trial in self._earlier if states is None or trial.state in states]
        return earlier + super().get_all_trials(study_id, deepcopy, states)


def study_of(question: Question, trials: Sequence[FrozenTrial], sampler: BaseSampler) -> Study:
    return create_study(
        storage=_History(trials), sampler=sampler, directions=["minimize"] * question.objectives, study_name="sweep"
    )


def asked(study: Study, space: Space) -> dict[str, Value]:
    """The next values of the study: parameter after parameter, those that are active."""
    trial, values = study.ask(), dict[str, Value]()
    for each in space.parameters:
        if not space.active(each, values):
            continue
        if each.is_constant:
            values[each.name] = each.at(0)
        else:
            values[each.name] = value_of(each, _suggested(trial, each.name, distribution_of(each)))
    return values


def trials_of(question: Question) -> list[FrozenTrial]:
    """The trials of all observations, in the order of their numbers, from 1 on: 0 is the one that is asked for."""
    distributions = distributions_of(question.space)
    constraints = max((len(each.violations) for each in question.observations), default=0)
    known = [each for each in question.observations if _is_known(each, question.objectives)]
    return [
        _trial(number, observation, distributions, constraints) for number, observation in enumerate(known, start=1)
    ]


def _trial(
    number: int, observation: Observation, distributions: Mapping[str, BaseDistribution], constraints: int
) -> FrozenTrial:
    state = _STATES[observation.state]
    params = {name: value for name, value in observation.values.items() if name in distributions}
    trial = FrozenTrial(
        number=number,
        trial_id=number,
        state=state,
        value=None,
        values=observation.objectives if state is TrialState.COMPLETE else None,
        datetime_start=None,
        datetime_complete=None,
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs={},
        system_attrs={},
        intermediate_values=_intermediate_values(observation),
    )
    if state is not TrialState.RUNNING:
        # The same constraints for all: samplers that model them want it so.
        for place in range(constraints):
            violation = observation.violations[place] if place < len(observation.violations) else 0.0
            trial.set_constraint(str(place), violation)
    return trial


def _intermediate_values(observation: Observation) -> dict[int, float]:
    if observation.state != "stopped" or not observation.objectives:
        return {}
    return {observation.step: observation.objectives[0]}


def _is_known(observation: Observation, objectives: int) -> bool:
    """Whether a sampler can use it: it has not failed, and has completed with every objective."""
    if observation.state == "completed":
        return len(observation.objectives) == objectives and all(map(math.isfinite, observation.objectives))
    return observation.state in _STATES


def _suggested(trial: Trial, name: str, distribution: BaseDistribution) -> Value:
    match distribution:
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case CategoricalDistribution(choices=choices):
            return cast("Value", trial.suggest_categorical(name, choices))
    raise TypeError(f"there is no parameter of a {type(distribution).__name__}")
