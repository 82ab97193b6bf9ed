"""The life cycle of a training, independent of method and framework: load, train, evaluate, export; on one or more
devices.
"""

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, Protocol

from datasets import Dataset, disable_progress_bars
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, TrainerState
from transformers.utils.logging import disable_progress_bar

from workers.rank.run_context import Result, RunContext
from workers.trainers.data.datasets import Splits, load
from workers.trainers.distributed import StepBoundary, first_rank_first, wait_for_all
from workers.trainers.hf_trainer.checkpoints.best_weights import BestWeights
from workers.trainers.hf_trainer.loop.batch_plan import batch_plan
from workers.trainers.hf_trainer.loop.early_stopping import EarlyStopCallback
from workers.trainers.hf_trainer.loop.oom_adjustments import explain_out_of_memory, report_adjustments
from workers.trainers.hf_trainer.loop.parallelism import parallelism_of
from workers.trainers.hf_trainer.loop.stop_and_save import CheckpointSaver, StepAbandoned, StopAndSaveCallback
from workers.trainers.hf_trainer.model import pretrained
from workers.trainers.hf_trainer.model.model_card import RunModelCard
from workers.trainers.hf_trainer.model.trainable_weights import FullWeights
from workers.trainers.hf_trainer.monitoring.divergence_detector import DivergenceDetector
from workers.trainers.hf_trainer.monitoring.reporting import Reporting, Totals
from workers.trainers.hf_trainer.monitoring.straggler_timing import StepTimer


class TrainingLoop(Protocol):
    """The training loop: a trl trainer, or a framework's own loop that calls the same callbacks."""

    state: TrainerState

    @property
    def module(self) -> nn.Module:
        """This rank's part of the model."""
        ...

    def train(self, resume_from_checkpoint: str | None = None) -> object:
        """Run the remaining steps."""

    def is_finished(self, checkpoint: str) -> bool:
        """Whether the checkpoint was taken after all steps that this job plans."""
        ...

    def restore(self, checkpoint: str) -> None:
        """Load weights and counters of a finished training."""

    def save(self) -> None:
        """Save a checkpoint of the current weights."""

    def evaluate(self) -> object:
        """Evaluate the validation data and report the metrics."""

    def measure_test(self, dataset: Dataset) -> dict[str, float]:
        """Metrics of the test split, named test_…"""
        ...

    def whole_model(self) -> PreTrainedModel | PeftModel | None:
        """The model to export, on rank 0; collective."""
        ...


class Training(ABC):
    """Trains, evaluates and exports; resumes exactly where a checkpoint was taken. Subclasses implement `build` per
    method.
    """

    loss_has_trend = True  # whether the loss is expected to decrease

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.plan = batch_plan(context, self.devices)
        self.weights = self.choose_weights()
        manifest = context.resume_manifest()
        self._resume = context.spec.resume_checkpoint or None
        position = manifest.data_position if manifest else {}
        # A new job that resumes this checkpoint has a different loss level.
        seen = position.get("loss_watch") if context.taken_over() is None else None
        watch = DivergenceDetector(seen, has_trend=self.loss_has_trend)
        self.boundary = StepBoundary(context)
        self.step_timer = StepTimer(context, self.boundary)
        self._reporting = Reporting(
            context, Totals.restored(position), self.plan.records_per_step, watch, self.step_timer.metrics
        )
        self._early_stopping = EarlyStopCallback(context, self._reporting)
        self._best = BestWeights(context, self._reporting)
        self.saving = self.make_saving()
        self.stop_and_save = StopAndSaveCallback(
            context, self._reporting, self._early_stopping, self._best, self.saving, self.boundary
        )
        disable_progress_bar()  # type: ignore[no-untyped-call]
        disable_progress_bars()

    def run(self) -> Result:
        """As Trainer.run."""
        with explain_out_of_memory(self.context.spec, self.plan):
            return self._run()

    def _run(self) -> Result:
        report_adjustments(self.context, self.plan)
        with self.context.section("loading"):
            if self._resume is not None:
                self._resume = parallelism_of(self.context.spec.framework).resumable(self.context, self._resume)
            tokenizer = pretrained.load_tokenizer(self.context.spec)
            splits = self._load_data(tokenizer)
            trainer = self.build(splits, tokenizer)
            self.saving.set_tokenizer(tokenizer)
        self._train(trainer)
        measured = False
        while not (stops := self._stops(trainer)) and not measured:
            with suppress(StepAbandoned):  # a pause that broke it off may have been given up
                self._measure(trainer, splits)
                measured = True
        if stops:
            return self._result(trainer)
        return self._result(trainer, self._export(trainer, tokenizer))

    @property
    def devices(self) -> int:
        """Number of devices that share the records of a step."""
        return self.context.spec.world_size

    @property
    def callbacks(self) -> list[TrainerCallback]:
        """The loop's callbacks in call order."""
        return [self._reporting, self._early_stopping, self._best, self.stop_and_save, self.step_timer]

    @abstractmethod
    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrainingLoop:
        """The loop for this method. Raises ModelNotFound and InvalidConfig."""

    def make_saving(self) -> CheckpointSaver:
        """The checkpoint saver; `boundary` exists already."""
        return parallelism_of(self.context.spec.framework).saving(self.context, self.boundary, self.weights.load)

    def choose_weights(self) -> FullWeights:
        """The weights to train."""
        return FullWeights(self.context.spec)

    def common(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """Arguments shared by the trainers of all trl methods."""
        return {
            "spec": self.context.spec,
            "saving": self.saving,
            "step_timer": self.step_timer,
            "padded_to_multiple_of": self.plan.padded_to_multiple_of,
            "resumed": self.context.resume_manifest(),
            "taken_over": self.context.taken_over(),
            "train_dataset": splits.train,
            "eval_dataset": splits.validation,
            "processing_class": tokenizer,
            "callbacks": self.callbacks,
        }

    def _load_data(self, tokenizer: PreTrainedTokenizerBase) -> Splits:
        with first_rank_first():
            splits = load(self.context.spec, tokenizer, self.context.work_dir / "datasets")
        if self.context.rank == 0:
            print(_summary(splits), flush=True)  # noqa: T201  (the job's log is stdout)
        return splits

    def _train(self, trainer: TrainingLoop) -> None:
        if self._resume is not None and (self._early_stopping.stopped or trainer.is_finished(self._resume)):
            self.context.phase("TRAINING")
            trainer.restore(self._resume)
            self.stop_and_save.saved_step = trainer.state.global_step
        else:
            with suppress(StepAbandoned):
                trainer.train(resume_from_checkpoint=self._resume)
        self.stop_and_save.training_over = True

    def _stops(self, trainer: TrainingLoop) -> bool:
        """Whether all ranks stop here, after the training; unsaved state is checkpointed first."""
        self.stop_and_save.agree_on_stop(trainer.state.global_step)
        if self.stop_and_save.is_unsaved(trainer.state.global_step):
            self.context.phase("CHECKPOINTING")
            trainer.save()
        return self.stop_and_save.stop is not None

    def _measure(self, trainer: TrainingLoop, splits: Splits) -> None:
        """The final evaluation, unless the last step was just evaluated, and the test split with the exported
        weights.
        """
        if splits.validation is not None and self._reporting.evaluated_step != trainer.state.global_step:
            self.context.phase("EVALUATING")
            trainer.evaluate()
        self._best.take(trainer.module)
        if splits.test is None:
            return
        self.context.phase("EVALUATING")
        values = trainer.measure_test(splits.test)
        self._reporting.latest |= values
        self.context.report_metrics(trainer.state.global_step, values)

    def _export(self, trainer: TrainingLoop, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
        self.context.phase("EXPORTING")
        weights: tuple[str, ...] = ()
        model = trainer.whole_model()
        if self.context.rank == 0:
            if model is None:
                raise RuntimeError("the first rank has no model to export")
            card = RunModelCard(self.context.spec, self._reporting.final_metrics, trainer.state.global_step)
            weights = self.weights.export(model, tokenizer, card, self.context.output_dir)
        wait_for_all()
        return weights

    def _result(self, trainer: TrainingLoop, weights: tuple[str, ...] = ()) -> Result:
        stop = self.stop_and_save.stop
        return Result(
            stopped=stop.kind if stop else None,
            step=trainer.state.global_step,
            tokens=self._reporting.totals.tokens,
            final_metrics=self._reporting.final_metrics,
            output=str(self.context.output_dir) if weights else "",
            weight_files=weights,
        )


def _summary(splits: Splits) -> str:
    """One line for the job's log."""
    found = splits.statistics
    sizes = ", ".join(f"{name} {count}" for name, count in found.get("splits", {}).items())
    lengths = found.get("lengths") or {}
    tokens = f"half of them have at most {lengths['0.5']} tokens, the longest {lengths['max']}" if lengths else ""
    truncated = f"{found['truncated_share']:.1%} truncated" if lengths else ""
    return "; ".join(part for part in (f"data: {sizes or 'streamed'}", tokens, truncated) if part)
