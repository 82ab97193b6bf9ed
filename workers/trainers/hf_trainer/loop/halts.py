"""The steps at which a run halts or saves by its job's document: every rank knows them, so no message is needed."""

from transformers import TrainerState

from app.domain.lifecycle.halts import is_halt
from trainyard.protocol.messages import HALT
from workers.rank.run_context import RunSpec, Stop
from workers.rank.spec_sections import output_config, training_config


class PlannedStops:
    """`halt_at` and `save_at` of the document; amounts up to the step that a run starts from never come."""

    def __init__(self, spec: RunSpec) -> None:
        self._halts = training_config(spec).halt_at
        self._saves = frozenset(output_config(spec).checkpoint.save_at)

    def halts(self, state: TrainerState) -> bool:
        """Whether the run halts after this step. Its last step is its normal end."""
        return is_halt(self._halts, step=state.global_step, epoch=state.epoch or 0.0, total_steps=state.max_steps)

    def saves(self, state: TrainerState) -> bool:
        """Whether a checkpoint is saved after this step, whatever else is due."""
        return state.global_step in self._saves


def halt_instead_of(requested: Stop | None) -> Stop | None:
    """The stop at a halt: a request that can wait for a checkpoint is met by the halt, which saves one and ends the
    run. The others, such as a cancel, keep their meaning.
    """
    if requested is not None and (requested.force or not requested.save_checkpoint):
        return requested
    return Stop(HALT, save_checkpoint=True)
