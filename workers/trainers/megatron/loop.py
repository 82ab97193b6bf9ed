"""The training loop: forward and backward passes through all pipeline stages, and what is due between steps."""

import math
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import MegatronModule
from transformers import (
    DefaultFlowCallback,
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import CallbackHandler

from app.domain.spec import metrics
from workers.rank.run_context import RunContext, method_of
from workers.trainers.distributed import StepBoundary
from workers.trainers.megatron.batches import GroupData, StepBatches
from workers.trainers.megatron.layout import rank_position
from workers.trainers.megatron.loss import forward
from workers.trainers.megatron.model import ModelShard, whole
from workers.trainers.megatron.resume import ResumableSchedule
from workers.trainers.megatron.saving import MegatronCheckpointSaver


class MegatronLoop:
    """As `hf_trainer.loop.training.TrainingLoop`; calls the callbacks of transformers' Trainer, at the same moments."""

    def __init__(
        self,
        context: RunContext,
        boundary: StepBoundary,
        saving: MegatronCheckpointSaver,
        part: ModelShard,
        data: GroupData,
        args: TrainingArguments,
        callbacks: list[TrainerCallback],
    ) -> None:
        self.state = TrainerState()
        self._context = context
        self._boundary = boundary
        self._saving = saving
        self._part = part
        self._data = data
        self._args = args
        self._going_on = ResumableSchedule(context, part, args, data.steps_of_an_epoch)
        self._control = TrainerControl()
        self._callbacks = CallbackHandler(  # type: ignore[no-untyped-call]
            [DefaultFlowCallback(), *callbacks], part.module, None, part.torch_optimizer, self._going_on.scheduler
        )
        self._unlogged: list[dict[str, float]] = []
        self._tokens = 0

    @property
    def module(self) -> MegatronModule:
        return self._part.module

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        self.state = self._going_on.started()
        if resume_from_checkpoint is not None:
            self.restore(resume_from_checkpoint)
        self._notify("on_train_begin")
        while self.state.global_step < self.state.max_steps and not self._control.should_training_stop:
            self._train_epoch()
        self._notify("on_train_end")

    def is_finished(self, checkpoint: str) -> bool:
        return self._going_on.step_of(Path(checkpoint)) >= self._going_on.steps

    def restore(self, checkpoint: str) -> None:
        self.state = self._going_on.restored(Path(checkpoint))

    def evaluate(self) -> None:
        if self._data.validation is None:
            return
        found = self._measured(self._data.validation, metrics.EVAL_PREFIX)
        self._notify("on_log", found)
        self._notify("on_evaluate", found)

    def measure_test(self, dataset: Dataset) -> dict[str, float]:
        return self._measured(dataset, "test_")

    def save(self) -> None:
        directory = Path(str(self._args.output_dir)) / f"checkpoint-{self.state.global_step}"
        self._saving.take(directory, self._part, self.state, self._going_on.common())
        self._notify("on_save")

    def whole_model(self) -> PreTrainedModel | None:
        return whole(self._part, self._boundary)

    def _train_epoch(self) -> None:
        self._notify("on_epoch_begin")
        for share in self._data.training(self.state.global_step):
            self._notify("on_step_begin")
            self._step(share)
            self._notify("on_step_end")
            self._do_what_is_due()
            if self._control.should_training_stop:
                break
        self._notify("on_epoch_end")
        self._do_what_is_due()

    def _step(self, share: StepBatches) -> None:
        self._part.chunk.train()
        self._part.chunk.zero_grad_buffer()
        self._part.optimizer.zero_grad()
        found = self._passed(share)
        rate = self._going_on.scheduler.get_last_lr()[0]
        _, norm, _ = self._part.optimizer.step()
        self._going_on.scheduler.step()
        self._tokens += int(found["tokens"])
        self._unlogged.append({**_means(found), "learning_rate": rate, "grad_norm": float(norm or 0.0)})
        self.state.global_step += 1
        self.state.epoch = self.state.global_step / self._data.steps_of_an_epoch

    def _passed(self, share: StepBatches, *, learns: bool = True) -> dict[str, float]:
        """Forward passes, and backward ones if it trains; sums over all records of all ranks."""
        of_batches = get_forward_backward_func()(
            forward_step_func=partial(forward, self._part.shape.vocabulary),
            data_iterator=iter(share.batches),
            model=[self._part.chunk],
            num_microbatches=len(share.batches),
            seq_length=share.length,
            micro_batch_size=len(share.batches[0]["input_ids"]),
            forward_only=not learns,
        )
        names = ("learned", *metrics.COMMON)
        sums = [0.0] * (1 + len(names))
        if rank_position().is_reporter:
            sums = [float(share.tokens), *(sum(float(found[name]) for found in of_batches) for name in names)]
        return dict(zip(("tokens", *names), self._boundary.summed(sums), strict=True))

    def _do_what_is_due(self) -> None:
        if self._control.should_log and self._unlogged:
            logs = {name: sum(step[name] for step in self._unlogged) / len(self._unlogged) for name in metrics.COMMON}
            last = {name: self._unlogged[-1][name] for name in ("learning_rate", "grad_norm")}
            self._unlogged = []
            self._notify("on_log", {**logs, **last, "num_tokens": self._tokens})
        if self._control.should_evaluate:
            self.evaluate()
        if self._control.should_save:
            self.save()

    @torch.no_grad()
    def _measured(self, dataset: Dataset, prefix: str) -> dict[str, float]:
        """Means over all tokens with labels."""
        self._part.chunk.eval()
        sums: dict[str, float] = {}
        for share in self._data.measuring(dataset):
            for name, value in self._passed(share, learns=False).items():
                sums[name] = sums.get(name, 0.0) + value
        means = _means(sums)
        means["perplexity"] = metrics.perplexity(means["loss"])
        return {prefix + name: means[name] for name in metrics.evaluated(method_of(self._context.spec))}

    def _notify(self, event: str, values: dict[str, float] | None = None) -> None:
        """Call the callbacks, which set in the control what is due."""
        more = () if values is None else (values,)
        self._control = getattr(self._callbacks, event)(self._args, self.state, self._control, *more)


def _means(sums: dict[str, float]) -> dict[str, float]:
    return {name: sums[name] / sums["learned"] if sums["learned"] else math.nan for name in metrics.COMMON}
