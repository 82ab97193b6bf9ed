"""Trunks: how many optimizer steps two trainings have in common, so that one of them can begin with the other's."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.errors import BadSpec
from app.domain.spec.document import trainer, typed_hyperparameters
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter, Matters, Value
from app.domain.spec.hyperparameters.schedules import steps_with_equal_rates
from app.domain.spec.hyperparameters.tables import PLATEAU, TABLES
from app.domain.spec.model import HaltAt, JobDocument, SchedulingConfig
from app.domain.sweeps.results import REPORT
from app.domain.sweeps.spec import PAUSE, PBT, SweepSpec

# Their trainers continue from another job's checkpoint bit by bit, with rates of their own.
FRAMEWORKS = ("HF_TRAINER", "FSDP", "DEEPSPEED")
_RLHF = "RLHF"
# Of a fork's report these say the same as of a training from the start.
_REPORTED_ALIKE = (f"{REPORT}steps", f"{REPORT}tokens")
# A fork that would spare less of its steps is not waited for, and nothing is saved for it.
WORTHWHILE = 0.2


@dataclass(frozen=True)
class Trunk:
    """A trial that begins after ``step`` steps of an earlier one."""

    trial: int
    forked_from: int
    step: int


def first_difference(first: JobDocument, second: JobDocument) -> int:
    """How many optimizer steps two completed documents have in common for certain; 0 for none.

    After so many steps weights, moments, random numbers and place in the data are the same, bit by bit, on the same
    kind of device. Names, labels, scheduling, retries, and which checkpoints are saved have no effect on them.
    """
    try:
        a, b = typed_hyperparameters(first), typed_hyperparameters(second)
    except (InvalidHyperparameter, KeyError):
        return 0
    if not _is_comparable(first, a) or not _is_comparable(second, b) or _rest(first) != _rest(second):
        return 0
    matters = _matters(first)
    differing = {matters[name] for name in a if a[name] != b[name]}
    if "start" in differing:
        return 0
    steps = steps_with_equal_rates(a, b) if "schedule" in differing else int(a["max_steps"])
    if a["max_steps"] != b["max_steps"]:
        shorter, total = min((first, int(a["max_steps"])), (second, int(b["max_steps"])), key=lambda each: each[1])
        steps = min(steps, _last_in_common(shorter, total))
    return max(0, _before_halts(first.training_config.halt_at, second.training_config.halt_at, steps))


def refusal(spec: SweepSpec, document: JobDocument) -> str:
    """Why trials of this sweep share nothing; empty: they may."""
    framework = trainer(document)[0]
    counted = [*(each.metric for each in spec.objectives), *(each.metric for each in spec.constraints)]
    other = next((name for name in counted if name.startswith(REPORT) and name not in _REPORTED_ALIKE), None)
    if framework not in FRAMEWORKS:
        return f"only {', '.join(FRAMEWORKS)} continue from another trial's checkpoint bit by bit, {framework} does not"
    if trainer(document)[1] == _RLHF:
        return "what RLHF has generated before a branch is not part of its checkpoints"
    if spec.method.name == PBT:
        return "pbt chooses itself which trial begins with which checkpoint"
    if other is not None:
        return f"{other} of a trial that begins with another one's checkpoint lacks the part that it did not train"
    return ""


def check_sharing(spec: SweepSpec, document: JobDocument) -> None:
    """Raises BadSpec where the sweep asks for trunks that its trials can't have."""
    reason = refusal(spec, document) or _nothing_shared(spec, document)
    if spec.share_trunks and reason:
        raise BadSpec(f"{reason}; leave it out, or set it to false", field="share_trunks")
    if not spec.verify_trunks:
        return
    if spec.share_trunks is False or reason:
        raise BadSpec(
            f"no trial is a fork: {reason or 'share_trunks is false'}; leave it out, or set it to 0",
            field="verify_trunks",
        )
    if spec.early_stopping.losers == PAUSE:
        raise BadSpec(
            "a training that is compared with a fork never halts; set early_stopping.losers to stop, or leave it out",
            field="verify_trunks",
        )


def _nothing_shared(spec: SweepSpec, document: JobDocument) -> str:
    """Why trials have no steps in common, where each parameter matters from the first step on."""
    later = sorted(name for name, matters in _matters(document).items() if matters != "start")
    if spec.parameters.keys() & set(later):
        return ""
    return f"every parameter matters from the first step on; of this training only {', '.join(later)} may matter later"


def shared_names(spec: SweepSpec, document: JobDocument) -> frozenset[str]:
    """Parameters of the sweep in which two of its trials may differ and still have steps in common."""
    if spec.share_trunks is False or refusal(spec, document):
        return frozenset()
    later = {name for name, matters in _matters(document).items() if matters != "start"}
    return frozenset(later & spec.parameters.keys())


def latest_branch(spec: SweepSpec, total: int) -> int:
    """The last step after which a trial of so many steps may begin with another one's checkpoint.

    One that halts at rungs is measured there: it trains up to the first one itself.
    """
    rule = spec.early_stopping
    if rule.losers != PAUSE or not rule.min:
        return total
    return min(total, rule.min - 1) if rule.unit == "steps" else 0


def alike(first: Mapping[str, Value], second: Mapping[str, Value], *, but_for: frozenset[str]) -> bool:
    """Whether two sets of values differ in these parameters only."""
    names = (first.keys() | second.keys()) - but_for
    return all(name in first and name in second and first[name] == second[name] for name in names)


def _is_comparable(document: JobDocument, values: Mapping[str, Value]) -> bool:
    """Not where a training's past evaluations decide how it continues: a new job does not know them."""
    remembers = values.get("early_stopping_patience") or values.get("load_best_model_at_end")
    framework, training_type = trainer(document)
    return (
        framework in FRAMEWORKS
        and training_type != _RLHF
        and not remembers
        and values["lr_scheduler_type"] != PLATEAU
        and int(values["max_steps"]) > 0
        # The epochs of streamed data are as long as the training.
        and not document.data_config.streaming
    )


def _matters(document: JobDocument) -> dict[str, Matters]:
    return {item.name: item.matters for item in TABLES.get(trainer(document), ())}


def _rest(document: JobDocument) -> JobDocument:
    """The document without its hyperparameters and what has no effect on the weights."""
    training = document.training_config.without("hyperparameters", "max_retries", "retry_on_hang", "priority", "warm")
    checkpoint = document.output_config.checkpoint.without("save_at", "save_total_limit")
    return document.changed(
        name="",
        labels={},
        training_config=training.without("halt_at"),
        output_config=document.output_config.changed(checkpoint=checkpoint),
        scheduling_config=SchedulingConfig(),
    )


def _last_in_common(shorter: JobDocument, total: int) -> int:
    """Of the shorter training the last step that a longer one makes the same way.

    At its end it evaluates, which draws random numbers, unless the longer one evaluates there, too.
    """
    evaluation, checkpoint = shorter.training_config.evaluation, shorter.output_config.checkpoint
    strategy = checkpoint.save_strategy if evaluation is None else evaluation.strategy
    every = (evaluation.steps if evaluation is not None else None) or checkpoint.save_steps
    return total if strategy == "steps" and total % every == 0 else total - 1


def _before_halts(first: HaltAt | None, second: HaltAt | None, steps: int) -> int:
    """A run evaluates where it halts: both have to halt at the same steps."""
    if first == second:
        return steps
    given = [halts for halts in (first, second) if halts is not None]
    if any(halts.unit != "steps" for halts in given):
        return 0
    one, other = (set(halts.at) if halts is not None else set[int]() for halts in (first, second))
    return min([steps, *(step - 1 for step in one ^ other)])
