"""Rules of population based training: members that halt together, and values that may change between checkpoints."""

import re

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.hyperparameters.tables import FIXED_ON_RESUME
from app.domain.spec.model import JobDocument
from app.domain.sweeps.documents import ENVIRONMENT
from app.domain.sweeps.parameters import Parameter
from app.domain.sweeps.population import EXPLORE
from app.domain.sweeps.rules.early_stopping import length, scripts_can_halt
from app.domain.sweeps.rules.objectives import measured_on_the_way
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import NONE, PBT, SweepSpec

MAX_HALTS = 1_000
MAX_STEPS = re.compile(r"[0-9]{1,12}")  # a script's hyperparameters are any texts
_MAX_STEPS = "job.training_config.hyperparameters.max_steps"
_LENGTHS = ("max_steps", "num_train_epochs")
_STOPS_EARLY = "early_stopping_patience"


def check_population(spec: SweepSpec, space: Space, documents: list[JobDocument]) -> None:
    """``documents`` are those of trials at the ends of the space. Raises BadSpec."""
    if spec.method.explore not in EXPLORE:
        raise BadSpec(f"must be {' or '.join(EXPLORE)}", field="method.explore")
    if spec.method.name != PBT:
        return
    scripts_can_halt(documents, or_else="use another method")
    if documents[0].training_config.halt_at is not None:
        raise BadSpec("is set by pbt, by its interval; leave it out", field="job.training_config.halt_at")
    if documents[0].output_config.checkpoint.resume_from_best:
        raise BadSpec(
            "members of pbt continue from their newest checkpoint, where they have halted; leave it out",
            field="job.output_config.checkpoint.resume_from_best",
        )
    if spec.early_stopping.name != NONE:
        raise BadSpec("pbt replaces its worst members itself; leave it out, or use none", field="early_stopping.name")
    measured_on_the_way(spec.objectives[0].metric, documents, field="objective.metric", asks=PBT)
    _may_vary(space, of_script=is_custom(documents[0]))
    _halts(spec, documents[0])
    check_members(spec)


def _may_vary(space: Space, *, of_script: bool) -> None:
    varied = [parameter for parameter in space.parameters if not parameter.is_constant]
    if not varied:
        raise BadSpec(
            "nothing varies, so that a fork of pbt would train as its winner does; give at least one parameter more "
            "than one value",
            field="parameters",
        )
    for parameter in varied:
        _may_change(parameter, of_script=of_script)


def _may_change(parameter: Parameter, *, of_script: bool) -> None:
    """Only hyperparameters and variables with which a job may start from another one's checkpoint.

    What a CUSTOM script does with a hyperparameter, and what its checkpoints contain, is its own.
    """
    name, field = parameter.name, f"parameters.{parameter.name}"
    if name in _LENGTHS:
        raise BadSpec("is the same for all members of pbt, which halt together; set max_steps in job", field=field)
    if name == _STOPS_EARLY and not of_script:
        raise BadSpec(
            f"{name} may not vary with pbt, which ends its worst members itself; set it in job, for all of them",
            field=field,
        )
    if name in FIXED_ON_RESUME and not of_script:
        raise BadSpec(
            f"{name} may not vary with pbt: a fork starts from its winner's checkpoint, whose content depends on it; "
            "set it in job, or use another method",
            field=field,
        )
    if "." in name and not name.startswith(ENVIRONMENT):
        raise BadSpec(
            f"{name} may not vary with pbt: a fork starts from its winner's checkpoint, with the same model, data and "
            "devices; vary hyperparameters, set it in job, or use another method",
            field=field,
        )


def _halts(spec: SweepSpec, document: JobDocument) -> None:
    interval, steps = spec.method.interval, _steps(document)
    if steps <= 0:
        raise BadSpec(
            "is missing: pbt compares its members after every interval of it; set it above method.interval",
            field=_MAX_STEPS,
        )
    if interval is None:
        raise BadSpec(
            "is missing: say after how many optimizer steps the members of pbt are compared", field="method.interval"
        )
    if not 1 <= interval < steps:
        raise BadSpec(
            f"must be from 1 to below max_steps, {steps}, so that members halt at all", field="method.interval"
        )
    if (steps - 1) // interval > MAX_HALTS:
        raise BadSpec(f"makes more than {MAX_HALTS:,} halts in {steps} steps; raise it", field="method.interval")


def _steps(document: JobDocument) -> int:
    if not is_custom(document):
        return int(length(document, "max_steps"))
    given = document.training_config.hyperparameters.get("max_steps")
    if given is None:
        return 0
    steps = int(given) if MAX_STEPS.fullmatch(str(given)) else 0
    if steps < 1:
        raise BadSpec("must be a whole number in digits, from 1 to 999999999999, for pbt to read it", field=_MAX_STEPS)
    return steps


def check_members(spec: SweepSpec) -> None:
    """That the budget and the method make every member. Raises BadSpec."""
    if spec.method.name != PBT:
        return
    population, most = spec.method.population, spec.budget.max_trials
    if most is not None and population > most:
        raise BadSpec(
            f"is {population}, more than budget.max_trials, {most}, for which every member counts, and every fork, "
            "too; lower it, or raise max_trials",
            field="method.population",
        )
    if population == most:
        raise BadSpec(
            f"is {most}, as is method.population, so that no fork fits, of which each counts, too; raise it",
            field="budget.max_trials",
        )
    if spec.budget.running == "cancel":
        raise BadSpec(
            "ends the members of pbt when the last fork is made, before any has trained to its end; use finish",
            field="budget.running",
        )
    if len(spec.enqueue) > population:
        raise BadSpec(
            f"has {len(spec.enqueue)} entries, more than method.population, {population}, of which each is one",
            field="enqueue",
        )
