"""Extends any trl trainer with a deterministic data order, perplexity and resuming from a checkpoint's weights."""

import json
import random
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from datasets import Dataset
from peft import PeftModel
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerState, set_seed
from transformers.trainer import SCHEDULER_NAME

from app.domain.spec.metrics import evaluated, perplexity
from trainyard.protocol.checkpoint_manifest import Manifest
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config
from workers.trainers.hf_trainer.checkpoints.async_save import HostCheckpointSaver
from workers.trainers.hf_trainer.loop import warm_start
from workers.trainers.hf_trainer.loop.batch_order import LengthGrouped, PaddedOrder, Shuffled
from workers.trainers.hf_trainer.loop.lr_schedule import learning_rate_factor, scale, scheduler_kwargs
from workers.trainers.hf_trainer.monitoring.straggler_timing import StepTimer

_STATE_FILE = "trainer_state.json"


class _LoadResult(Protocol):
    """What torch's `load_state_dict` returns."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class TrlTrainer(Trainer):
    """First base of a class whose second base is a method's trl trainer; records are already tokenized."""

    # transformers allows None as well; here both are set before they are read.
    model: PreTrainedModel | PeftModel
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        spec: RunSpec,
        saving: HostCheckpointSaver,
        *,
        step_timer: StepTimer,
        padded_to_multiple_of: int = 1,
        perplexity: bool = False,
        resumed: Manifest | None = None,
        taken_over: Manifest | None = None,
        **arguments: Any,
    ) -> None:
        self._spec = spec
        self._saving = saving
        self._step_timer = step_timer
        self._padded_to_multiple_of = padded_to_multiple_of
        self._taken_over = taken_over
        self._own_settings: warm_start.Settings = []
        self._resumed = resumed
        self._perplexity = perplexity
        # What a checkpoint stores in place of the present one, when it is saved between two steps.
        self.kept_random_state: dict[str, Any] | None = None
        saving.prepare(arguments["args"])
        super().__init__(**arguments)
        self.module.register_forward_pre_hook(lambda *_: step_timer.resume())
        # One line per step would fill the job's log; Reporting prints a summary.
        self.remove_callback(PrinterCallback)

    @property
    def module(self) -> nn.Module:
        found: nn.Module = self.accelerator.unwrap_model(self.model)
        return found

    def whole_model(self) -> PreTrainedModel | PeftModel | None:
        """The model to export, on rank 0; collective."""
        return self._saving.whole_model(self)

    def own_files(self) -> dict[str, Any]:
        """Additional checkpoint contents by file name; values that are modified in place are copied."""
        return {}

    def is_finished(self, checkpoint: str) -> bool:
        """Whether the checkpoint was taken after all steps that this job plans."""
        state = json.loads((Path(checkpoint) / _STATE_FILE).read_text(encoding="utf-8"))
        if self._taken_over is None and state["global_step"] < state["max_steps"]:
            return False
        # The resuming job may plan a different number of steps than the job that made the checkpoint.
        _, per_epoch, *_, planned = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return self._step_of(state["global_step"], per_epoch) >= int(planned)

    def save(self) -> None:
        """Save a checkpoint of the current weights outside the regular schedule."""
        self._save_checkpoint(self.model, None)
        self.control = self.callback_handler.on_save(self.args, self.state, self.control)

    def restore(self, checkpoint: str) -> None:
        """Load weights and counters of a finished training; transformers' `train` would make one more step."""
        self._saving.restore(self, checkpoint)
        self.state = TrainerState.load_from_json(str(Path(checkpoint) / _STATE_FILE))

    def measure_test(self, dataset: Dataset) -> dict[str, float]:
        """Metrics of the test split, named test_…"""
        found = self.evaluate(dataset, metric_key_prefix="test")
        # trl always prefixes its additions with eval_.
        named = {name.partition("_")[2]: float(value) for name, value in found.items()}
        return {f"test_{name}": named[name] for name in evaluated(method_of(self._spec)) if name in named}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        for prefix in ("eval", "test") if self._perplexity else ():
            if f"{prefix}_loss" in logs:
                logs[f"{prefix}_perplexity"] = perplexity(logs[f"{prefix}_loss"])
        super().log(logs, start_time)

    def _get_num_items_in_batch(self, *args: Any, **kwargs: Any) -> torch.Tensor | int | None:
        with self._step_timer.waiting():
            return super()._get_num_items_in_batch(*args, **kwargs)

    def compute_loss(self, model: nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor | tuple[torch.Tensor, object]:
        # trl gathers one count per rank. Treated as "metrics" of an epoch's last batch, some ranks' counts would be
        # dropped, and different ones after a resume.
        self.accelerator.gather_for_metrics = self._gather
        # Before the model runs, DDP waits for the buffers of rank 0.
        self._step_timer.pause()
        try:
            return super().compute_loss(model, *args, **kwargs)
        finally:
            del self.accelerator.gather_for_metrics
            if model.training:
                # The backward pass exchanges gradients.
                self._step_timer.wait_begins()

    def _gather(self, values: torch.Tensor) -> torch.Tensor:
        with self._step_timer.waiting():
            found: torch.Tensor = self.accelerator.gather(values)
        return found

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        self.args.lr_scheduler_kwargs = scheduler_kwargs(self._spec, num_training_steps)
        found = super().create_scheduler(num_training_steps, optimizer)
        # Recorded before anything is loaded; DeepSpeed loads earlier than the others.
        self._own_settings = warm_start.group_settings(self.optimizer)
        return found

    def _save_checkpoint(self, *_: Any) -> None:
        self.store_flos()
        self._saving.take(self)

    def _step_of(self, step: int, steps_per_epoch: int) -> int:
        """This job's own step that corresponds to a checkpoint's step."""
        manifest = self._taken_over
        if manifest is None or manifest.world_size == self._spec.world_size or self.args.max_steps > 0:
            return step
        return warm_start.equivalent_step(manifest.epoch, steps_per_epoch)

    def _init_training_state(
        self,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        checkpoint: str | None,
        trial: object,
    ) -> tuple[int, int]:
        place: tuple[int, int] = super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, checkpoint, trial
        )
        if self._taken_over is None:
            return place
        # The loaded values are the other job's.
        self.state.compute_steps(self.args, max_steps)  # type: ignore[no-untyped-call]
        self.state.train_batch_size = self._train_batch_size
        self.state.global_step = self._step_of(self.state.global_step, num_update_steps_per_epoch)
        epochs, steps = divmod(self.state.global_step, num_update_steps_per_epoch)
        return epochs, steps * self.args.gradient_accumulation_steps

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self._taken_over is None or checkpoint is None:
            if checkpoint is None or not self._saving.load_optimizer(self, Path(checkpoint)):
                super()._load_optimizer_and_scheduler(checkpoint)
            else:
                scheduler: Any = self.lr_scheduler
                scheduler.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER_NAME, weights_only=True))
            self._follow_adjusted_rate()
            return
        if not self._saving.load_optimizer(self, Path(checkpoint)):
            warm_start.load_optimizer(self.optimizer, checkpoint)
        warm_start.restore_settings(self.optimizer, self._own_settings)
        warm_start.set_schedule_step(self.lr_scheduler, self.optimizer, self.state.global_step)

    def _follow_adjusted_rate(self) -> None:
        position = self._resumed.data_position if self._resumed is not None else {}
        ratio = learning_rate_factor(self._spec) / float(position.get("learning_rate_factor") or 1.0)
        if self._resumed is not None and ratio != 1.0:
            scale(cast("LRScheduler", self.lr_scheduler), self.optimizer, ratio)

    def _load_from_checkpoint(self, checkpoint: str, model: nn.Module | None = None) -> None:
        if not self._saving.load_weights(self, Path(checkpoint)):
            super()._load_from_checkpoint(checkpoint, model)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if self._resumed is None or self._resumed.world_size == self._spec.world_size:
            super()._load_rng_state(checkpoint)
            return
        # There is one random state per rank of the earlier run. Without reseeding, the numbers of the start would
        # repeat.
        place = f"{data_config(self._spec).seed}/{self.state.global_step}/{self.args.process_index}"
        set_seed(random.Random(place).randrange(1 << 32))  # noqa: S311

    def _issue_warnings_after_load(self, load_result: _LoadResult) -> None:
        """Tied weights are stored once, so one of their names is always missing."""
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or ())
        if not set(load_result.missing_keys) <= tied or load_result.unexpected_keys:
            super()._issue_warnings_after_load(load_result)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int] | None:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if not isinstance(dataset, Dataset):
            return super()._get_train_sampler(train_dataset)
        seed = data_config(self._spec).seed
        order: LengthGrouped | None = None
        if self._spec.hyperparameters.get("group_by_length"):
            order = LengthGrouped(dataset, self.get_total_train_batch_size(self.args), seed, self._epoch_to_come)
        if self._padded_to_multiple_of > 1:
            return PaddedOrder(order or Shuffled(dataset, seed, self._epoch_to_come), self._padded_to_multiple_of)
        return order or super()._get_train_sampler(train_dataset)

    def _epoch_to_come(self) -> int:
        # A checkpoint at the end of an epoch belongs to the next one.
        return int((self.state.epoch or 0) + 1e-9)
