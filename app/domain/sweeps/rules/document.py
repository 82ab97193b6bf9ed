"""Everything about a sweep's document that is refused before the database is asked."""

import math
from collections.abc import Mapping
from typing import Any

from app.domain.errors import ERROR_TYPES, BadSpec, InvalidRequest, is_cause
from app.domain.spec.defaults import completed
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.training import trainer_exists
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.grid import grid_values
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.rules.early_stopping import check_early_stopping
from app.domain.sweeps.rules.limits import DEFAULT, SweepLimits, check_space, check_trials
from app.domain.sweeps.rules.objectives import check_constraints, check_objectives
from app.domain.sweeps.rules.parameters import check_parameters
from app.domain.sweeps.rules.population import check_members, check_population
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import (
    ANNEAL,
    AVG_BEST_IDX,
    BOHB,
    CMAES,
    FREE,
    GP,
    GRID,
    HYPERBAND,
    MAX_PARALLEL,
    MAX_SEED,
    MAX_TRIALS,
    METHODS,
    PBT,
    POPULATION,
    RESTARTS,
    SHRINK_COEF,
    SIGMA0,
    STARTUP_TRIALS,
    TRANSFER,
    Budget,
    FailedTrials,
    Method,
    SweepSpec,
    WarmStart,
)
from app.domain.sweeps.trunks import check_sharing

MAX_KEPT = 1_000
# These methods have one objective.
OF_ONE_OBJECTIVE = (GP, CMAES, ANNEAL, BOHB, PBT)


def check(spec: SweepSpec, limits: SweepLimits = DEFAULT) -> Space:
    """The space of the sweep. Raises InvalidRequest, naming the field, for the first rule that the document breaks."""
    space = Space.from_json(spec.parameters, spec.require)
    check_space(space, limits)
    document = _read(spec.job)
    _trainer_is_known(document)
    check_parameters(space, spec.job, document)
    documents = [_read_trial(spec, values) for values in space.examples()[:2]]
    check_objectives(spec, documents)
    check_constraints(spec, documents)
    check_budget(spec)
    check_trials(spec, limits)
    _check_method(spec, space, limits)
    check_early_stopping(spec, documents)
    check_population(spec, space, documents)
    check_sharing(spec, documents[0])
    _check_warm_start(spec.warm_start)
    for i, values in enumerate(spec.enqueue):
        space.check(values, field=f"enqueue.{i}")
    return space


def check_other_budget(spec: SweepSpec, limits: SweepLimits | None) -> None:
    """A budget that takes the place of another one. May take seconds for a grid with conditions. Raises BadSpec.

    Without ``limits`` its number of trials is the same: what was allowed when the sweep was created stays allowed.
    """
    check_budget(spec)
    check_members(spec)
    if limits is None:
        return
    check_trials(spec, limits)
    if spec.method.name == GRID:
        _grid_ends(spec, Space.from_json(spec.parameters, spec.require), limits)


def check_budget(spec: SweepSpec) -> None:
    """The budget and what belongs to it. Raises BadSpec."""
    budget = spec.budget
    _numbers_of_budget(budget)
    bounds = (budget.max_trials, budget.max_device_hours, budget.max_seconds)
    if spec.method.name != GRID and all(bound is None for bound in bounds):
        raise BadSpec("is missing: say after how many trials the sweep ends", field="budget.max_trials")
    if budget.max_trials is not None and len(spec.enqueue) > budget.max_trials:
        raise BadSpec(f"has {len(spec.enqueue)} entries, more than budget.max_trials", field="enqueue")
    if budget.running not in ("finish", "cancel"):
        raise BadSpec("must be finish or cancel", field="budget.running")
    if len(spec.objectives) > 1:
        for key, value in (("target", budget.target), ("patience", budget.patience)):
            if value is not None:
                raise BadSpec(
                    f"needs one objective, there are {len(spec.objectives)}; leave it out", field=f"budget.{key}"
                )
    if spec.deterministic and budget.parallel_trials == FREE:
        raise BadSpec(
            "must be a number in a deterministic sweep, which must not depend on free devices",
            field="budget.parallel_trials",
        )
    _failed_trials(spec.on_failed_trials)
    if not 0 <= spec.keep_checkpoints_of_best <= MAX_KEPT:
        raise BadSpec(f"must be from 0 to {MAX_KEPT}", field="keep.checkpoints_of_best")


def _read(job: Any) -> JobDocument:  # noqa: ANN401 - where JSON enters
    try:
        return completed(JobDocument.from_json(job))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadSpec(f"is no job document: {error}", field="job") from error


def _read_trial(spec: SweepSpec, values: Mapping[str, Value]) -> JobDocument:
    try:
        return _read(trial_document(spec.job, values, name="", labels={}))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadSpec("is no job document: a section that a parameter stands in is no object", field="job") from error


def _trainer_is_known(document: JobDocument) -> None:
    try:
        trainer_exists(document)
    except InvalidRequest as error:
        raise type(error)(error.message, field=f"job.{error.field}") from error


def _numbers_of_budget(budget: Budget) -> None:
    _whole(budget.max_trials, "max_trials", MAX_TRIALS)
    _whole(budget.patience, "patience", MAX_TRIALS)
    if budget.parallel_trials != FREE:
        _whole(budget.parallel_trials, "parallel_trials", MAX_PARALLEL)
    for key, value in (("max_device_hours", budget.max_device_hours), ("max_seconds", budget.max_seconds)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise BadSpec("must be above 0; leave it out for no limit", field=f"budget.{key}")
    if budget.target is not None and not math.isfinite(budget.target):
        raise BadSpec("must be finite; leave it out for none", field="budget.target")


def _whole(value: int | str | None, key: str, most: int) -> None:
    if value is not None and not (type(value) is int and 1 <= value <= most):
        either = f", or {FREE}" if key == "parallel_trials" else ""
        raise BadSpec(f"must be a whole number from 1 to {most:,}{either}", field=f"budget.{key}")


def _failed_trials(rule: FailedTrials) -> None:
    most = rule.max_failed
    if most is not None and not (math.isfinite(most) and 0 <= most <= MAX_TRIALS and (most < 1 or most == int(most))):
        raise BadSpec(
            f"must be a whole number from 0 to {MAX_TRIALS:,}, or a share of all trials below 1",
            field="on_failed_trials.max_failed",
        )
    for place, cause in enumerate(rule.causes or ()):
        if not is_cause(cause):
            raise BadSpec(
                f"there is no error type {cause}; the error types are {', '.join(ERROR_TYPES)}",
                field=f"on_failed_trials.causes.{place}",
            )


def _check_method(spec: SweepSpec, space: Space, limits: SweepLimits) -> None:
    method = spec.method
    if method.name not in METHODS:
        raise BadSpec(f"must be one of {', '.join(METHODS)}", field="method.name")
    _options(method)
    if method.name in OF_ONE_OBJECTIVE and len(spec.objectives) > 1:
        raise BadSpec(
            f"{method.name} has one objective, there are {len(spec.objectives)}; use nsga2 or tpe", field="method.name"
        )
    if method.name == BOHB and spec.early_stopping.name != HYPERBAND:
        raise BadSpec(
            "bohb learns from the values at the rungs of hyperband; set early_stopping.name to hyperband, or use tpe",
            field="method.name",
        )
    if method.name == GRID:
        _grid_ends(spec, space, limits)
        return
    if method.name == CMAES:
        _only_numbers(space)
    random_values(space, seed_of(method.seed, 0))


def _options(method: Method) -> None:
    for key, value, low, high in (
        ("seed", method.seed, 0, MAX_SEED),
        ("startup_trials", method.startup_trials, *STARTUP_TRIALS),
        ("sigma0", method.sigma0, *SIGMA0),
        ("restarts", method.restarts, *RESTARTS),
        ("population", method.population, *POPULATION),
        ("avg_best_idx", method.avg_best_idx, *AVG_BEST_IDX),
        ("shrink_coef", method.shrink_coef, *SHRINK_COEF),
    ):
        if value is not None and not low <= value <= high:
            raise BadSpec(f"must be from {low} to {high}", field=f"method.{key}")
    if method.order not in ("natural", "shuffled"):
        raise BadSpec("must be natural or shuffled", field="method.order")


def _check_warm_start(rule: WarmStart) -> None:
    if rule.count and (rule.kind == TRANSFER or not rule.sweeps):
        why = "no results are taken over by transfer" if rule.kind == TRANSFER else "no sweep is named"
        raise BadSpec(
            f'has nothing to count: {why}; name sweeps with "kind": "results", or leave it out',
            field="warm_start.count",
        )


def _grid_ends(spec: SweepSpec, space: Space, limits: SweepLimits) -> None:
    """Every point that may be asked for is found now, so that none is refused while the sweep runs."""
    method, most = spec.method, spec.budget.max_trials
    if grid_values(space, 0, order=method.order, seed=method.seed) is None:
        raise BadSpec("the conditions leave no point of the grid; loosen them", field="require")
    last = grid_values(space, most - 1 if most else limits.max_trials, order=method.order, seed=method.seed)
    if most is None and last is not None:
        raise BadSpec(
            f"is missing: the grid has more than {limits.max_trials:,} points, of which a sweep tries at most so many",
            field="budget.max_trials",
        )


def _only_numbers(space: Space) -> None:
    varying = [parameter for parameter in space.parameters if not parameter.is_constant]
    for parameter in varying:
        if parameter.type in ("categorical", "bool"):
            raise BadSpec(
                f"cmaes has numbers only, and {parameter.name} is {parameter.type}; use tpe", field="method.name"
            )
    if len(varying) < 2:
        raise BadSpec("cmaes needs at least two numbers that vary; use tpe or gp", field="method.name")
