"""The life of a training, whatever it learns by and with: load, train, measure, export; on one device or several."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

from datasets import Dataset, disable_progress_bars
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerState
from transformers.utils.logging import disable_progress_bar

from workers.rank.run_context import Result, RunContext
from workers.trainers.data.datasets import Splits, load
from workers.trainers.distributed import StepBoundary, first_rank_first, wait_for_all
from workers.trainers.hf_trainer.checkpoints.best_weights import BestWeights
from workers.trainers.hf_trainer.loop.batch_plan import batch_plan
from workers.trainers.hf_trainer.loop.early_stopping import EarlyStopping
from workers.trainers.hf_trainer.loop.oom_adjustments import tell_adjustments, telling_memory
from workers.trainers.hf_trainer.loop.parallelism import division_of
from workers.trainers.hf_trainer.loop.stop_and_save import Boundaries, Saving
from workers.trainers.hf_trainer.model import pretrained
from workers.trainers.hf_trainer.model.model_card import ModelCard
from workers.trainers.hf_trainer.model.trainable_weights import AllWeights
from workers.trainers.hf_trainer.monitoring.divergence_detector import LossWatch
from workers.trainers.hf_trainer.monitoring.reporting import Reporting, Totals
from workers.trainers.hf_trainer.monitoring.straggler_timing import Pace


class Loop(Protocol):
    """What trains, steps and all: a trainer of trl, or a framework's own loop that calls the same callbacks."""

    state: TrainerState

    @property
    def module(self) -> Any:
        """What of the model this rank has."""

    def train(self, resume_from_checkpoint: str | None = None) -> Any:
        """Make the steps that are left."""

    def is_finished(self, checkpoint: str) -> bool:
        """Whether a checkpoint was taken after all the steps that this job plans."""
        ...

    def restore(self, checkpoint: str) -> None:
        """Take over weights and counts of a finished training."""

    def save(self) -> None:
        """A checkpoint of the weights as they are."""

    def evaluate(self) -> Any:
        """Measure the validation data and report it."""

    def measure_test(self, dataset: Dataset) -> dict[str, float]:
        """The metrics of the test split, named test_…"""
        ...

    def whole_model(self) -> Any:
        """What is exported, on rank 0; every rank takes part."""


class Training(ABC):
    """Trains, evaluates, exports; goes on exactly where a checkpoint was taken. A method says what to `build`."""

    loss_has_trend = True  # to be lower after than before

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.plan = batch_plan(context, self.devices)
        self.weights = self.choose_weights()
        manifest = context.resume_manifest()
        self._resume = context.spec.resume_checkpoint or None
        position = manifest.data_position if manifest else {}
        # Another job that goes on from this checkpoint has another loss to get used to.
        seen = position.get("loss_watch") if context.taken_over() is None else None
        watch = LossWatch(seen, has_trend=self.loss_has_trend)
        self.boundary = StepBoundary(context)
        self.pace = Pace(context, self.boundary)
        self._reporting = Reporting(
            context, Totals.restored(position), self.plan.records_per_step, watch, self.pace.told
        )
        self._early_stopping = EarlyStopping(context, self._reporting)
        self._best = BestWeights(context, self._reporting)
        self.saving = self.make_saving()
        self._boundaries = Boundaries(
            context, self._reporting, self._early_stopping, self._best, self.saving, self.boundary
        )
        disable_progress_bar()  # type: ignore[no-untyped-call]
        disable_progress_bars()

    def run(self) -> Result:
        """As Trainer.run."""
        with telling_memory(self.context.spec, self.plan):
            return self._run()

    def _run(self) -> Result:
        tell_adjustments(self.context, self.plan)
        with self.context.section("loading"):
            if self._resume is not None:
                self._resume = division_of(self.context.spec.framework).resumable(self.context, self._resume)
            tokenizer = pretrained.load_tokenizer(self.context.spec)
            splits = self._load_data(tokenizer)
            trainer = self.build(splits, tokenizer)
            self.saving.keep_tokenizer(tokenizer)
        self._train(trainer)
        if not self._stops(trainer):
            self._measure(trainer, splits)
        if self._stops(trainer):
            return self._result(trainer)
        return self._result(trainer, self._export(trainer, tokenizer))

    @property
    def devices(self) -> int:
        """Among how many the records of a step are divided."""
        return self.context.spec.world_size

    @property
    def callbacks(self) -> list[TrainerCallback]:
        """What the loop tells of its events, in this order."""
        return [self._reporting, self._early_stopping, self._best, self._boundaries, self.pace]

    @abstractmethod
    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> Loop:
        """What trains by this method. Raises ModelNotFound and InvalidConfig."""

    def make_saving(self) -> Saving:
        """How checkpoints are written; `boundary` is there already."""
        return division_of(self.context.spec.framework).saving(self.context, self.boundary, self.weights.load)

    def choose_weights(self) -> AllWeights:
        """What of the model is trained."""
        return AllWeights(self.context.spec)

    def common(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """What the trainer of every method of trl is made with."""
        return {
            "spec": self.context.spec,
            "saving": self.saving,
            "pace": self.pace,
            "filled_up_to": self.plan.filled_up_to,
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

    def _train(self, trainer: Loop) -> None:
        if self._resume is not None and (self._early_stopping.stopped or trainer.is_finished(self._resume)):
            self.context.phase("TRAINING")
            trainer.restore(self._resume)
            self._boundaries.saved_step = trainer.state.global_step
        else:
            trainer.train(resume_from_checkpoint=self._resume)
        self._boundaries.training_over = True

    def _stops(self, trainer: Loop) -> bool:
        """Whether all ranks end here, after the training; what is not in a checkpoint yet is saved before."""
        self._boundaries.agree_on_stop(trainer.state.global_step)
        if self._boundaries.is_unsaved(trainer.state.global_step):
            self.context.phase("CHECKPOINTING")
            trainer.save()
        return self._boundaries.stop is not None

    def _measure(self, trainer: Loop, splits: Splits) -> None:
        """The final measure, unless the last step has just been measured, and the test split's of what is exported."""
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

    def _export(self, trainer: Loop, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
        self.context.phase("EXPORTING")
        weights: tuple[str, ...] = ()
        model = trainer.whole_model()
        if self.context.rank == 0:
            card = ModelCard(self.context.spec, self._reporting.final_metrics, trainer.state.global_step)
            weights = self.weights.export(model, tokenizer, card, self.context.output_dir)
        wait_for_all()
        return weights

    def _result(self, trainer: Loop, weights: tuple[str, ...] = ()) -> Result:
        stop = self._boundaries.stop
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
