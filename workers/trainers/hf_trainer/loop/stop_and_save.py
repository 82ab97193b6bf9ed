"""Callback at the step boundary of a Hugging Face trainer: stops, saves and reports the phase."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from torch import nn
from torch.optim import Optimizer
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from app.domain.lifecycle.halts import completes_epoch
from trainyard.protocol.messages import HALT
from workers.rank.run_context import CHECKPOINT_FAILED, RunContext, Saved, Stop
from workers.rank.spec_sections import output_config
from workers.trainers.distributed import StepBoundary, wait_for_all
from workers.trainers.hf_trainer.checkpoints.best_weights import BestWeights
from workers.trainers.hf_trainer.loop.early_stopping import EarlyStopCallback
from workers.trainers.hf_trainer.loop.halts import PlannedStops, halt_instead_of
from workers.trainers.hf_trainer.loop.lr_schedule import learning_rate_factor
from workers.trainers.hf_trainer.monitoring.reporting import Reporting

EVALUATION_DUE = "evaluation_due"  # in a checkpoint's position: the evaluation of its step is still to come


class StepAbandoned(Exception):
    """The run ends in the middle of a step, of which nothing is trained, or of an evaluation."""


class CheckpointSaver(Protocol):
    """How a framework writes checkpoints."""

    def set_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Provide the tokenizer, which every checkpoint contains."""

    def reserve(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Prepare for the first checkpoint while the training runs; the optimizer has made a step."""

    def commit(self, directory: Path, saved: Saved, best: BinaryIO | None) -> bool:
        """Write the taken state to `directory`, complete it and hand it over; False when the training must wait for
        it.
        """
        ...


class StopAndSaveCallback(TrainerCallback):
    """Applies the control requests that all ranks agreed on, and the document's halts; writes and hands over each
    checkpoint.

    Added after `Reporting`, `EarlyStopCallback` and `BestWeights`, and after the trainer's own flow callback has set
    what is due at this step.
    """

    def __init__(
        self,
        context: RunContext,
        reporting: Reporting,
        early_stopping: EarlyStopCallback,
        best: BestWeights,
        saving: CheckpointSaver,
        boundary: StepBoundary,
    ) -> None:
        self.stop: Stop | None = None
        self.training_over = False
        self.saved_step = -1  # step of the newest checkpoint, or of the start
        self._context = context
        self._reporting = reporting
        self._early_stopping = early_stopping
        self._best = best
        self._boundary = boundary
        self._saving = saving
        self._epochs = output_config(context.spec).checkpoint.save_epochs
        self._planned = PlannedStops(context.spec)
        self._first = -1  # step of the start
        self._reserved = False
        self._asked = False
        self._evaluation_due = False
        self._phase = ""
        self._first_step = ExitStack()

    def agree_on_stop(self, step: int) -> Stop | None:
        """Ask all ranks again after the last step and its checkpoint."""
        self._context.settle()
        if self.stop is None:  # else its checkpoint is stored already
            self.stop = self._boundary.decide().stop
            if self.stop is not None and self.stop.save_checkpoint and step == self.saved_step:
                self._secure(self.stop)
        return self.stop

    def is_unsaved(self, step: int) -> bool:
        """Whether a stop without loss still needs a checkpoint of the weights after `step`."""
        return self.stop is not None and self.stop.save_checkpoint and step != self.saved_step

    def breaks_off(self, step: int, *, evaluates: bool) -> bool:
        """Whether this rank has heard of a request that a wait for completions would delay.

        ``step``: the last one that was made; ``evaluates``: the completions are those of its evaluation.
        """
        stop = self._context.stop
        if stop is None:
            return not evaluates and step != self.saved_step and self._boundary.is_save_asked()
        # A halt is where values are compared: it has its evaluation.
        halts = self.stop is not None and self.stop.kind == HALT
        return not (evaluates and halts and stop.save_checkpoint)

    def ends_here(
        self, state: TrainerState, control: TrainerControl, save: Callable[[], None], *, evaluates: bool
    ) -> bool:
        """Follow the requests that all ranks agree on after a wait was broken off; whether the run ends.

        What is saved is the state after the last step. Collective.
        """
        decision, step = self._boundary.decide(), state.global_step
        if self.training_over or decision.stop is None:
            if decision.save and not evaluates and step != self.saved_step:
                save()
            return decision.stop is not None
        self.stop, control.should_training_stop = decision.stop, True
        self._first_step.close()
        self._evaluation_due = evaluates
        if self.is_unsaved(step) or (self.stop.save_checkpoint and evaluates and step != self._first):
            self._enter("CHECKPOINTING")
            save()
        elif self.stop.save_checkpoint:
            self._secure(self.stop)
        self._evaluation_due = False
        control.should_training_stop = self._is_complete(state) or self.stop is not None
        self._back_to_training(control)
        return self.stop is not None

    def evaluation_begins(self, control: TrainerControl) -> None:
        """The evaluation of the step that the run starts from, which was broken off; its values get a checkpoint."""
        control.should_evaluate = control.should_save = True
        self._announce(control)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # A stop before the first step loses nothing.
        self.saved_step = self._first = state.global_step
        self._enter("TRAINING")
        # Streamed records that were already used are read again, and some GPU code is compiled only now.
        self._first_step.enter_context(self._context.section("first step"))

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        self._first_step.close()
        self._context.check()
        decision = self._boundary.decide()
        stop, self._asked = decision.stop, decision.save or self._planned.saves(state)
        if self._planned.halts(state):
            stop = halt_instead_of(stop)
            self._evaluate_at_halt(args, state, control)
        if stop is not None:
            self.stop = stop
            control.should_training_stop = True
            self._prepare_stop(args, state, control)
        elif self._asked:
            control.should_save = not self._saves_at_epoch_end(args, state)
        elif not self._reserved and args.save_strategy != "no" and model is not None and optimizer is not None:
            self._reserved = True
            self._saving.reserve(model, optimizer)
        self._announce(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The trainer also ends an epoch when it stops in the middle of one."""
        if state.global_step == self.saved_step:
            control.should_save = False
        elif self._asked or not self._is_due(args, state, control):
            control.should_save = self._asked
        if self.stop is not None:
            due = self.is_unsaved(state.global_step)
            control.should_save = due
            control.should_evaluate = control.should_evaluate and due
        self._announce(control)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Weights with a suspect loss are saved only on request, because a rollback needs the last good ones."""
        if self._reporting.watch.is_suspect and not self._asked and not control.should_training_stop:
            control.should_save = False

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if control.should_save and control.should_training_stop:
            self._enter("CHECKPOINTING")
        else:
            self._back_to_training(control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.saved_step = state.global_step
        if self._context.rank == 0:
            directory = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            if self.stop is not None:
                self._context.excuse()
            if not self._saving.commit(directory, self._saved(state), self._best.opened()):
                self._enter("CHECKPOINTING")
                self._context.rest()
        if self.stop is not None and not self._secure(self.stop):
            control.should_training_stop = self._is_complete(state)
        self._back_to_training(control)

    def _is_complete(self, state: TrainerState) -> bool:
        """Whether the training ends after this step without a request, too."""
        return state.global_step >= state.max_steps or self._early_stopping.stopped

    def _is_due(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> bool:
        """Whether this epoch is one to save; the last always is."""
        done = round(state.epoch or 0.0)
        return args.save_strategy != "epoch" or done % self._epochs == 0 or control.should_training_stop

    def _prepare_stop(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Save now, or at the end of the epoch if this step is its last and an evaluation is due there.

        An evaluation consumes random numbers. A resumed run must consume as many as an uninterrupted one, so everything
        due at this step happens before the save.
        """
        wants = self.stop is not None and self.stop.save_checkpoint
        control.should_save = wants and not self._saves_at_epoch_end(args, state)
        control.should_evaluate = control.should_evaluate and wants

    @staticmethod
    def _saves_at_epoch_end(args: TrainingArguments, state: TrainerState) -> bool:
        """Whether a checkpoint of this step has to wait for what is due at the end of its epoch."""
        return "epoch" in (args.save_strategy, args.eval_strategy) and completes_epoch(state.epoch or 0.0)

    @staticmethod
    def _evaluate_at_halt(args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Evaluate at each halt, if the run evaluates at all; also when a request stops it there: a resumed run does
        not come by again.
        """
        comes_anyway = args.eval_strategy == "epoch" and completes_epoch(state.epoch or 0.0)
        if args.eval_strategy != "no" and not comes_anyway:
            control.should_evaluate = True

    def _secure(self, stop: Stop) -> bool:
        """Stop only when the checkpoint is in storage; otherwise all ranks abandon a pause that is not forced."""
        with self._context.section("checkpoint"):
            problem = self._context.secure() if self._context.rank == 0 else ""
            if not self._boundary.any_rank(bool(problem)):
                return not self._is_abandoned(stop)
        if stop.kind == HALT:
            self.stop = None
            self._context.note(
                CHECKPOINT_FAILED, f"continues past its halt, as its checkpoint is not stored: {problem}"
            )
            return False
        # The request may have been upgraded meanwhile.
        latest = self._context.stop or stop
        if self._boundary.any_rank(latest.kind != "pause" or latest.force):
            self._context.note(CHECKPOINT_FAILED, f"stopped without the requested checkpoint: {problem}")
            return True
        self.stop = None
        self._context.forget_stop(stop)
        # From here on another pause may be requested, and every rank must have dropped this one.
        wait_for_all()
        self._context.pause_failed(stop, problem)
        return False

    def _is_abandoned(self, stop: Stop) -> bool:
        """An evaluation before the save may have taken longer than the pause's time limit."""
        given_up = self._boundary.any_rank(self._context.rank == 0 and self._context.is_given_up(stop))
        if given_up:
            self.stop = None
            self._context.forget_stop(stop)
        return given_up

    def _announce(self, control: TrainerControl) -> None:
        """Only a final checkpoint has a phase of its own; others are written while the training runs."""
        # Values counted since the last log belong in the checkpoint, or in the result.
        control.should_log = control.should_log or control.should_save or control.should_training_stop
        if control.should_evaluate:
            self._enter("EVALUATING")
        elif control.should_save and control.should_training_stop:
            self._enter("CHECKPOINTING")

    def _back_to_training(self, control: TrainerControl) -> None:
        # A checkpoint written in the background does not end the training phase.
        if self._phase != "TRAINING" and not control.should_training_stop and not self.training_over:
            self._enter("TRAINING")

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._context.phase(phase)

    def _saved(self, state: TrainerState) -> Saved:
        epoch = state.epoch or 0.0
        position = {
            "epoch": epoch,
            **self._reporting.totals.to_document(),
            "early_stopping": self._early_stopping.to_document(),
            "best": self._best.to_document(),
            "loss_watch": self._reporting.watch.to_document(),
            "records_per_step": self._reporting.records_per_step,
            "learning_rate_factor": learning_rate_factor(self._context.spec),
        }
        digests = [source.get("sha256") for source in self._context.spec.sources]
        if all(digests):
            # A resumed run checks that its data still has these digests.
            position["sources_sha256"] = digests
        if self._evaluation_due:
            position[EVALUATION_DUE] = True
        if self._context.spec.reward_sha256:
            position["reward_sha256"] = self._context.spec.reward_sha256
        metrics = self._reporting.metrics_at(state.global_step)
        return Saved(step=state.global_step, epoch=epoch, metrics=metrics, data_position=position)
