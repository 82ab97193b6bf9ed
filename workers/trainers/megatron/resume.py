"""The training's position in its steps and schedule, at its start and after a checkpoint."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState, TrainingArguments, get_scheduler

from workers.rank.run_context import RunContext
from workers.trainers.hf_trainer.loop import warm_start
from workers.trainers.hf_trainer.loop.lr_schedule import learning_rate_factor, scale, scheduler_kwargs
from workers.trainers.hf_trainer.loop.oom_adjustments import NOT_BIT_EQUAL
from workers.trainers.megatron import saving
from workers.trainers.megatron.layout import reseed, set_random_state
from workers.trainers.megatron.model import ModelShard


class ResumableSchedule:
    """The planned steps, the learning rate of each, and resuming from a checkpoint."""

    def __init__(self, context: RunContext, part: ModelShard, args: TrainingArguments, steps_of_an_epoch: int) -> None:
        self._context = context
        self._part = part
        self._args = args
        self._per_epoch = steps_of_an_epoch
        self.steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * steps_of_an_epoch)
        self.scheduler: Any = get_scheduler(
            args.lr_scheduler_type,
            part.torch_optimizer,
            num_warmup_steps=args.get_warmup_steps(self.steps),
            num_training_steps=self.steps,
            scheduler_specific_kwargs=scheduler_kwargs(context.spec, self.steps),
        )

    def started(self) -> TrainerState:
        """The state before the first step."""
        state = TrainerState(max_steps=self.steps, num_train_epochs=math.ceil(self.steps / self._per_epoch), epoch=0.0)
        state.compute_steps(self._args, self.steps)  # type: ignore[no-untyped-call]
        return state

    def step_of(self, checkpoint: Path) -> int:
        """This job's own step at a checkpoint, which may be another job's."""
        step = int(TrainerState.load_from_json(str(checkpoint / saving.STATE_FILE)).global_step)
        manifest = self._context.taken_over()
        if manifest is None or self._args.max_steps > 0:
            return step
        return warm_start.equivalent_step(manifest.epoch, self._per_epoch)

    def common(self) -> dict[str, Any]:
        """The values to store in a checkpoint."""
        return {"scheduler": self.scheduler.state_dict(), "layout": asdict(self._part.layout)}

    def restored(self, checkpoint: Path) -> TrainerState:
        """The state of a checkpoint, after its weights, moments and random numbers are loaded."""
        optimizer = self._part.torch_optimizer
        own = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        found = saving.load(checkpoint, self._part)
        state = self.started()
        state.global_step = self.step_of(checkpoint)
        state.epoch = state.global_step / self._per_epoch
        if self._context.taken_over() is None:
            self.scheduler.load_state_dict(found["scheduler"])
            self._follow_adjusted_rate()
        else:
            # Moments come from the other job, settings from this one.
            for group, settings in zip(optimizer.param_groups, own, strict=True):
                group.update(settings)
            warm_start.set_schedule_step(self.scheduler, optimizer, state.global_step)
        self._draw_on(checkpoint, found["layout"], state.global_step)
        return state

    def _follow_adjusted_rate(self) -> None:
        manifest = self._context.resume_manifest()
        position = manifest.data_position if manifest is not None else {}
        ratio = learning_rate_factor(self._context.spec) / float(position.get("learning_rate_factor") or 1.0)
        if ratio != 1.0:
            scale(self.scheduler, self._part.torch_optimizer, ratio)

    def _draw_on(self, checkpoint: Path, layout: dict[str, int], step: int) -> None:
        if layout == asdict(self._part.layout):
            states = torch.load(checkpoint / saving.RANDOM_FILE, weights_only=True)
            set_random_state(states[self._context.rank])
            return
        reseed(self._context.spec, step)
        if self._context.rank == 0 and math.prod(layout.values()) == self._context.spec.world_size:
            self._context.note(
                NOT_BIT_EQUAL,
                f"resumed after step {step} with another parallel layout: dropout draws other numbers and sums are "
                "rounded in another order, so the results are no longer bitwise equal",
                {"step": step, "before": layout, "now": asdict(self._part.layout)},
            )
