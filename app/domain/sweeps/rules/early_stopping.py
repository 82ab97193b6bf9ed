"""Rules of early stopping: rungs that trials can reach, of an objective that is measured on the way."""

import math

from app.domain.errors import BadSpec
from app.domain.spec import metrics
from app.domain.spec.document import is_custom, typed_hyperparameters
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.model import EPOCHS, JobDocument
from app.domain.spec.rules.halts import script_can_halt
from app.domain.sweeps.documents import names_halts
from app.domain.sweeps.rules.objectives import measured_on_the_way
from app.domain.sweeps.spec import EARLY_STOPPING, NONE, PATIENCE, PAUSE, TOKENS, UNITS, EarlyStopping, SweepSpec

MAX_RUNGS = 1_000


def check_early_stopping(spec: SweepSpec, documents: list[JobDocument]) -> None:
    """``documents`` are those of trials at the ends of the space. Raises BadSpec."""
    rule = spec.early_stopping
    _has_no_halts(spec)
    if rule.name not in EARLY_STOPPING:
        raise _bad(f"must be one of {', '.join(EARLY_STOPPING)}", "name")
    if rule.name == NONE:
        if rule.losers == PAUSE:
            raise _bad("has no effect without early stopping; name a rule such as asha, or leave it out", "losers")
        if rule.unit != "steps":
            raise _bad("has no effect without early stopping; name a rule such as asha, or leave it out", "unit")
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
        _evaluations_are_planned(spec, built_in)


def _has_no_halts(spec: SweepSpec) -> None:
    if names_halts(spec.job):
        raise BadSpec(
            "trials halt where their sweep compares them; leave it out, and use early_stopping with losers: pause",
            field="job.training_config.halt_at",
        )


def _can_halt(rule: EarlyStopping, documents: list[JobDocument]) -> None:
    if rule.unit == TOKENS:
        units = "steps" if any(map(is_custom, documents)) else "steps or epochs"
        raise _bad(f"trials halt after {units}; use {units}, or set losers to stop", "unit")
    if rule.unit == EPOCHS and any(document.data_config.streaming for document in documents):
        raise _bad(
            "streamed data has no known length, so trials can't halt at the end of an epoch; use steps, or set losers "
            "to stop",
            "unit",
        )
    if rule.unit == EPOCHS and any(map(is_custom, documents)):
        raise _bad("a CUSTOM script halts after steps; use steps, or set losers to stop", "unit")
    scripts_can_halt(documents, or_else="set early_stopping.losers to stop")
    if any(document.output_config.checkpoint.resume_from_best for document in documents):
        raise BadSpec(
            "a trial that has halted resumes from the checkpoint of its halt; leave it out, or set "
            "early_stopping.losers to stop",
            field="job.output_config.checkpoint.resume_from_best",
        )


def scripts_can_halt(documents: list[JobDocument], *, or_else: str) -> None:
    """That CUSTOM scripts among the trials leave room for the hooks that halt them. Raises BadSpec."""
    try:
        for document in filter(is_custom, documents):
            script_can_halt(document, or_else=or_else)
    except BadSpec as error:
        raise BadSpec(error.message, field=f"job.{error.field}") from error


def _numbers(rule: EarlyStopping) -> None:
    if rule.unit not in UNITS:
        raise _bad(f"must be one of {', '.join(UNITS)}", "unit")
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
    # Counted without making them: those of other rules grow by powers, and are few up to any max.
    if rule.name == PATIENCE and rule.max // rule.min > MAX_RUNGS:
        raise _bad(f"makes more than {MAX_RUNGS} rungs up to max; raise it", "min")


def _rungs_are_reached(rule: EarlyStopping, documents: list[JobDocument]) -> None:
    """The longest of the trials gets to the last rung."""
    steps, epochs = (
        max(length(document, name) for document in documents) for name in ("max_steps", "num_train_epochs")
    )
    if rule.unit == "steps" and 0 < steps < rule.max:
        raise _bad(f"{rule.max} is above max_steps, {steps:g}; lower it to that", "max")
    if rule.unit == TOKENS and steps > 0:
        most = max(map(_most_tokens, documents))
        if most < rule.max:
            raise _bad(
                f"{rule.max:,} is more tokens than max_steps have, {most:,.0f} at most by batch_size and max_seq_length"
                "; lower it, or train longer",
                "max",
            )
    if rule.unit == "epochs" and steps <= 0 and epochs < rule.max:
        raise _bad(f"{rule.max} is above num_train_epochs, {epochs:g}; lower it, or train longer", "max")


def _most_tokens(document: JobDocument) -> float:
    """What a training of ``max_steps`` sees at most; infinite where the method makes several sequences of a record."""
    if document.training_config.training_type in ("DPO", "RLHF"):
        return math.inf
    data, resources = document.data_config, document.resource_config
    records = data.batch_size * data.gradient_accumulation_steps * resources.node_count * resources.gpu_count
    return length(document, "max_steps") * records * data.max_seq_length


def _evaluations_are_planned(spec: SweepSpec, documents: list[JobDocument]) -> None:
    """At rungs of steps and epochs trials are evaluated by default; at which steps those of tokens lie is not known."""
    if spec.early_stopping.unit != TOKENS or not spec.objectives[0].metric.startswith(metrics.EVAL_PREFIX):
        return
    if any(document.training_config.evaluation is None for document in documents):
        raise BadSpec(
            "is missing: at which steps rungs of tokens lie is not known before; say how often trials are evaluated",
            field="job.training_config.evaluation",
        )


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
