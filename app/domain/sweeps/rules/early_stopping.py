"""Rules of early stopping: rungs that trials can reach, of an objective that is measured on the way."""

from dataclasses import replace

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.document import is_custom, typed_hyperparameters
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.model import EPOCHS, JobDocument
from app.domain.sweeps.documents import names_halts, runs_script
from app.domain.sweeps.rules.objectives import measured_on_the_way
from app.domain.sweeps.rungs import rungs_of
from app.domain.sweeps.spec import EARLY_STOPPING, NONE, PAUSE, EarlyStopping, SweepSpec

MAX_RUNGS = 1_000
_UNITS = ("steps", "epochs")


def check_early_stopping(spec: SweepSpec, documents: list[JobDocument]) -> None:
    """``documents`` are those of trials at the ends of the space. Raises BadSpec."""
    rule = spec.early_stopping
    _has_no_halts(spec)
    if rule.name not in EARLY_STOPPING:
        raise _bad(f"must be one of {', '.join(EARLY_STOPPING)}", "name")
    if rule.name == NONE:
        if rule.losers == PAUSE:
            raise _bad("has no effect without early stopping; name a rule such as asha, or leave it out", "losers")
        return
    if len(spec.objectives) > 1:
        raise _bad("compares trials by one objective; name one, or use none", "name")
    measured_on_the_way(spec.objectives[0].metric, documents, field="early_stopping.name", asks=rule.name)
    _numbers(rule)
    if rule.losers == PAUSE:
        _can_halt(rule, documents)
    built_in = [document for document in documents if not is_custom(document)]
    if built_in:
        _rungs_are_reached(rule, built_in)


def without_impossible_halts(spec: SweepSpec) -> tuple[SweepSpec, list[str]]:
    """The sweep of a script stops its losers while they train; and the warning that says so."""
    rule = spec.early_stopping
    if rule.losers != PAUSE or rule.name == NONE or not runs_script(spec.job):
        return spec, []
    warning = (
        "early_stopping.losers: stop is used, because the platform does not know the steps of a custom script and "
        "can't stop it at one"
    )
    return replace(spec, early_stopping=replace(rule, losers="stop")), [warning]


def _has_no_halts(spec: SweepSpec) -> None:
    if names_halts(spec.job):
        raise BadSpec(
            "trials halt where their sweep compares them; leave it out, and use early_stopping with losers: pause",
            field="job.training_config.halt_at",
        )


def _can_halt(rule: EarlyStopping, documents: list[JobDocument]) -> None:
    if rule.unit == EPOCHS and any(document.data_config.streaming for document in documents):
        raise _bad(
            "streamed data has no known length, so trials can't halt at the end of an epoch; use steps, or set losers "
            "to stop",
            "unit",
        )
    if any(document.output_config.checkpoint.resume_from_best for document in documents):
        raise BadSpec(
            "a trial that has halted resumes from the checkpoint of its halt; leave it out, or set "
            "early_stopping.losers to stop",
            field="job.output_config.checkpoint.resume_from_best",
        )


def _numbers(rule: EarlyStopping) -> None:
    if rule.unit == "tokens":
        raise NotSupportedYet(
            "tokens are not stored by step, so that nothing says which value is the first after so many; use steps or "
            "epochs",
            field="early_stopping.unit",
        )
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
        max(length(document, name) for document in documents) for name in ("max_steps", "num_train_epochs")
    )
    if rule.unit == "steps" and 0 < steps < rule.max:
        raise _bad(f"{rule.max} is above max_steps, {steps:g}; lower it to that", "max")
    if rule.unit == "epochs" and steps <= 0 and epochs < rule.max:
        raise _bad(f"{rule.max} is above num_train_epochs, {epochs:g}; lower it, or train longer", "max")


def length(document: JobDocument, name: str) -> float:
    """A hyperparameter of the job that says how long it trains. Raises BadSpec for hyperparameters that are refused."""
    try:
        return float(typed_hyperparameters(document)[name])
    except (AttributeError, TypeError) as error:
        raise BadSpec("must be texts", field="job.training_config.hyperparameters") from error
    except InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"job.training_config.hyperparameters.{error.name}") from error


def _bad(message: str, key: str) -> BadSpec:
    return BadSpec(message, field=f"early_stopping.{key}")
