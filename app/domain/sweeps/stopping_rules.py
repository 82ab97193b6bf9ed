"""Rules of early stopping: rungs that trials can reach, of an objective that is measured on the way."""

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom, typed_hyperparameters
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.model import JobDocument
from app.domain.sweeps.objective_rules import REPORT
from app.domain.sweeps.rungs import rungs_of
from app.domain.sweeps.spec import EARLY_STOPPING, NONE, EarlyStopping, SweepSpec

MAX_RUNGS = 1_000
_UNITS = ("steps", "epochs")


def check_early_stopping(spec: SweepSpec, documents: list[JobDocument]) -> None:
    """``documents`` are those of trials at the ends of the space. Raises BadSpec."""
    rule = spec.early_stopping
    if rule.name not in EARLY_STOPPING:
        raise _bad(f"must be one of {', '.join(EARLY_STOPPING)}", "name")
    if rule.name == NONE:
        return
    if len(spec.objectives) > 1:
        raise _bad("compares trials by one objective; name one, or use none", "name")
    if spec.objectives[0].metric.startswith(REPORT):
        raise _bad("needs an objective that is measured while a trial trains, not one of its report", "name")
    _numbers(rule)
    built_in = [document for document in documents if not is_custom(document)]
    if built_in:
        _rungs_are_reached(rule, built_in)


def _numbers(rule: EarlyStopping) -> None:
    if rule.unit not in _UNITS:
        raise _bad(f"must be one of {', '.join(_UNITS)}", "unit")
    for key, value, least in (
        ("min", rule.min, 1),
        ("max", rule.max, 1),
        ("reduction", rule.reduction, 2),
        ("patience", rule.patience, 1),
        ("startup_trials", rule.startup_trials, 1),
    ):
        if value < least:
            raise _bad(f"must be a whole number, at least {least}", key)
    if rule.max < rule.min:
        raise _bad(f"{rule.max} is below min, {rule.min}; raise it: it is where trials end", "max")
    if rule.max // rule.min > MAX_RUNGS and len(rungs_of(rule)) > MAX_RUNGS:
        raise _bad(f"makes more than {MAX_RUNGS} rungs up to max; raise it", "min")


def _rungs_are_reached(rule: EarlyStopping, documents: list[JobDocument]) -> None:
    """The longest of the trials gets to the last rung."""
    steps, epochs = (
        max(_length(document, name) for document in documents) for name in ("max_steps", "num_train_epochs")
    )
    if rule.unit == "steps" and 0 < steps < rule.max:
        raise _bad(f"{rule.max} is above max_steps, {steps:g}; lower it to that", "max")
    if rule.unit == "epochs" and steps <= 0 and epochs < rule.max:
        raise _bad(f"{rule.max} is above num_train_epochs, {epochs:g}; lower it, or train longer", "max")


def _length(document: JobDocument, name: str) -> float:
    try:
        return float(typed_hyperparameters(document)[name])
    except (AttributeError, TypeError) as error:
        raise BadSpec("must be texts", field="job.training_config.hyperparameters") from error
    except InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"job.training_config.hyperparameters.{error.name}") from error


def _bad(message: str, key: str) -> BadSpec:
    return BadSpec(message, field=f"early_stopping.{key}")
