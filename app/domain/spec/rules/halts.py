"""Rules of ``halt_at`` and ``save_at``: amounts of training at which a run stops, or saves a checkpoint."""

from itertools import pairwise

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.frameworks.custom import CHECKPOINT_GLOB, METRIC, checkpoint_glob
from app.domain.spec.model import EPOCHS, JobDocument

MOST = 1000
_HALTS, _SAVES = "training_config.halt_at", "output_config.checkpoint.save_at"


def halts_can_be_reached(document: JobDocument) -> None:
    """Amounts from the end of the training on are no error: a search may vary how long its trainings are."""
    halts = document.training_config.halt_at
    if halts is None:
        return
    if is_custom(document):
        _counts_steps(halts.unit)
        script_can_halt(document, or_else="leave halt_at out")
    if not halts.at:
        raise BadSpec("name at least one amount, or leave halt_at out", field=f"{_HALTS}.at")
    _ascend(halts.at, f"{_HALTS}.at")
    if document.output_config.checkpoint.resume_from_best:
        raise BadSpec(
            "a halted job that resumes from its best checkpoint, and not from its newest, could reach the same halt "
            "again and again; leave resume_from_best or halt_at out",
            field="output_config.checkpoint.resume_from_best",
        )
    if halts.unit == EPOCHS and document.data_config.streaming:
        raise BadSpec(
            "streamed data has no known length, so the end of an epoch is not known either; count steps, or set "
            "data_config.streaming to false",
            field=f"{_HALTS}.unit",
        )


def script_can_halt(document: JobDocument, *, or_else: str) -> None:
    """A CUSTOM script halts by its hooks, which not every document leaves room for. Raises BadSpec."""
    config = document.training_config.framework.config
    pattern = next((name for name in sorted(config) if name.startswith(METRIC)), None)
    if checkpoint_glob(document):
        name, what = CHECKPOINT_GLOB, "names checkpoints of scripts"
    elif pattern is not None:
        name, what = pattern, "finds metrics of scripts"
    elif document.tasks:
        raise BadSpec(
            f"the instances of roles have no steps in common at which all of them halt; use one script, or {or_else}",
            field="tasks",
        )
    else:
        return
    raise BadSpec(
        f"{what} that don't use trainyard.hooks, which can't halt at a step; let the script report and save by the "
        f"hooks and leave this out, or {or_else}",
        field=f"training_config.framework.config.{name}",
    )


def _counts_steps(unit: str) -> None:
    if unit == EPOCHS:
        raise BadSpec("a CUSTOM script halts after steps; name steps", field=f"{_HALTS}.unit")


def checkpoints_are_in_order(document: JobDocument) -> None:
    _ascend(document.output_config.checkpoint.save_at, _SAVES)


def _ascend(amounts: tuple[int, ...], field: str) -> None:
    if len(amounts) > MOST:
        raise BadSpec(f"at most {MOST} amounts; this has {len(amounts)}", field=field)
    if amounts and amounts[0] < 1:
        raise BadSpec(f"{amounts[0]} is not above 0; begin with 1 or later", field=field)
    wrong = next(((first, second) for first, second in pairwise(amounts) if second <= first), None)
    if wrong is not None:
        raise BadSpec(f"{wrong[1]} follows {wrong[0]}; name the amounts in ascending order, each once", field=field)


RULES = (halts_can_be_reached, checkpoints_are_in_order)
