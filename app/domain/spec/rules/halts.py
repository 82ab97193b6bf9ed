"""Rules of ``halt_at`` and ``save_at``: amounts of training at which a run stops, or saves a checkpoint."""

from itertools import pairwise

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.document import is_custom
from app.domain.spec.model import EPOCHS, JobDocument

MOST = 1000
_HALTS, _SAVES = "training_config.halt_at", "output_config.checkpoint.save_at"


def halts_can_be_reached(document: JobDocument) -> None:
    """Amounts from the end of the training on are no error: a search may vary how long its trainings are."""
    halts = document.training_config.halt_at
    if halts is None:
        return
    if is_custom(document):
        raise NotSupportedYet(
            "the platform does not know the steps of a custom script: it can't stop at one; leave halt_at out, and let "
            "the script end where it should",
            field=_HALTS,
        )
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
