"""What happens between two steps of a Hugging Face trainer: stopping, saving, and saying which phase it is."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workers.run_context import RunContext, Saved, Stop
from workers.trainers.distributed import StepBoundary, wait_for_all
from workers.trainers.hf_trainer.best_weights import BestWeights
from workers.trainers.hf_trainer.early_stopping import EarlyStopping
from workers.trainers.hf_trainer.reporting import Reporting


class Boundaries(TrainerCallback):
    """Follows the wishes that all ranks agreed on; hands each checkpoint of the trainer over.

    Added after `Reporting`, `EarlyStopping` and `BestWeights`, and after the trainer's own flow has set what is due at
    this step.
    """

    def __init__(
        self, context: RunContext, reporting: Reporting, early_stopping: EarlyStopping, best: BestWeights
    ) -> None:
        self.stop: Stop | None = None
        self.training_over = False
        self._context = context
        self._reporting = reporting
        self._early_stopping = early_stopping
        self._best = best
        self._boundary = StepBoundary(context)
        self._saved_step = -1

    def agree_on_stop(self) -> Stop | None:
        """Ask all ranks once more, after the last step and its checkpoint."""
        self._context.settle()
        self.stop = self.stop or self._boundary.decide().stop
        return self.stop

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._context.phase("TRAINING")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        decision = self._boundary.decide()
        if decision.stop is not None:
            self.stop = decision.stop
            control.should_training_stop = True
            self._prepare_stop(args, state, control)
        elif decision.save:
            control.should_save = True
        self._announce(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The trainer ends an epoch also when it is told to stop in the middle of one."""
        if state.global_step == self._saved_step:
            control.should_save = False
        if self.stop is not None:
            due = self.stop.save_checkpoint and state.global_step != self._saved_step
            control.should_save = due
            control.should_evaluate = control.should_evaluate and due
        self._announce(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if control.should_save:
            self._context.phase("CHECKPOINTING")
        else:
            self._back_to_training(control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # Every rank writes the state of its random numbers into the directory.
        wait_for_all()
        self._saved_step = state.global_step
        if self._context.rank == 0:
            directory = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            self._context.commit_checkpoint(directory, self._saved(state))
        self._back_to_training(control)

    def _prepare_stop(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Save now, or at the end of the epoch if this step is its last and an evaluation is due there.

        An evaluation draws random numbers. The run that goes on later must draw as many as one
        that was never stopped, so what is due at this step happens before it is saved.
        """
        wants = self.stop is not None and self.stop.save_checkpoint
        at_epoch_end = "epoch" in (args.save_strategy, args.eval_strategy) and _completes_epoch(state)
        control.should_save = wants and not at_epoch_end
        control.should_evaluate = control.should_evaluate and wants

    def _announce(self, control: TrainerControl) -> None:
        # What was counted since the last log belongs into the checkpoint, or into the result.
        control.should_log = control.should_log or control.should_save or control.should_training_stop
        if control.should_evaluate:
            self._context.phase("EVALUATING")
        elif control.should_save:
            self._context.phase("CHECKPOINTING")

    def _back_to_training(self, control: TrainerControl) -> None:
        if not control.should_training_stop and not self.training_over:
            self._context.phase("TRAINING")

    def _saved(self, state: TrainerState) -> Saved:
        epoch = state.epoch or 0.0
        position = {
            "epoch": epoch,
            **self._reporting.totals.to_document(),
            "early_stopping": self._early_stopping.to_document(),
            "best": self._best.to_document(),
        }
        digests = [source.get("sha256") for source in self._context.spec.sources]
        if all(digests):
            # Whoever prepares a run that goes on from here checks that the data is still the same.
            position["sources_sha256"] = digests
        metrics = self._reporting.metrics_at(state.global_step)
        return Saved(step=state.global_step, epoch=epoch, metrics=metrics, data_position=position)


def _completes_epoch(state: TrainerState) -> bool:
    epoch = state.epoch or 0.0
    return abs(epoch - round(epoch)) < 1e-9
