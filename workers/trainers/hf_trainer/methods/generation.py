"""Adapts trl's trainers that generate completions: our tokenization, metric names and reference model."""

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from datasets import Dataset, IterableDataset
from torch.utils.data import Sampler
from transformers import PreTrainedModel
from trl.trainer.utils import RepeatSampler, add_fused_lm_head

from workers.rank.run_context import RunSpec
from workers.trainers.data.encoded import RECORD
from workers.trainers.hf_trainer.checkpoints.async_save import HostCheckpointSaver, present_random_state
from workers.trainers.hf_trainer.loop.parallelism import parallelism_of
from workers.trainers.hf_trainer.loop.stop_and_save import EVALUATION_DUE, StepAbandoned, StopAndSaveCallback
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.methods.completions import Completions, completions_of, sampling_options, seeded
from workers.trainers.rollouts.rollouts import BrokenOff
from workers.trainers.rollouts.waiting import Section

Examples = list[dict[str, Any]]

_RENAMED = {"completions/mean_length": "completion_length", "completions/clipped_ratio": "completions_cut"}


class GenerationTrainer(TrlTrainer):
    """First base of a class whose second base is a trl trainer; records have columns `prompt_ids` and `record`.

    trl generates a step's completions at its beginning and discards them at its end, so checkpoints need not store
    them.
    """

    def __init__(
        self,
        spec: RunSpec,
        saving: HostCheckpointSaver,
        *,
        reference: PreTrainedModel | None,
        beta: float,
        section: Section,
        stop_and_save: StopAndSaveCallback,
        **given: Any,
    ) -> None:
        self._stop_and_save = stop_and_save
        self._before_epoch: tuple[int, dict[str, Any]] | None = None  # the step before, and the random state
        self._before_evaluation: dict[str, Any] | None = None  # the random state
        # The norm of its gradients, and its learning rate.
        self._of_last_step: tuple[torch.Tensor | float | None, float | None] = (None, None)
        self._prompt_ids: list[list[int]] = []
        self._tokens_before = 0
        self._evaluations = 0  # of this process
        self._evaluated = 0  # completions of this evaluation, on all ranks
        super().__init__(spec, saving, **given)
        self.beta = beta
        division = parallelism_of(spec.framework)
        division.prepare_for_generation(self.model)
        if reference is not None:
            add_fused_lm_head(reference, temperature=spec.hyperparameters["temperature"])
            trl: Any = self
            trl.ref_model = division.prepared(self, reference)
        tokenizer: Any = self.processing_class
        self._completions = completions_of(
            spec,
            self.module,
            tokenizer,
            rank=self.args.process_index,
            section=section,
            breaks_off=lambda: stop_and_save.breaks_off(self.state.global_step, evaluates=not self.module.training),
        )
        position = {} if self._resumed is None or self._taken_over is not None else self._resumed.data_position
        self._evaluation_due = bool(position.get(EVALUATION_DUE))

    def close(self) -> None:
        """No completion is made any more."""
        if self._completions is not None:
            self._completions.close()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        model: Any = self.model
        trl: Any = self
        measured = trl._metrics["train" if model.training else "eval"]  # noqa: SLF001  (there is no other way in)
        for theirs, ours in _RENAMED.items():
            if theirs in measured:
                measured[ours] = measured.pop(theirs)
        if "num_tokens" in measured:
            # Other trainers count from the start of this process.
            measured["num_tokens"] = [measured["num_tokens"][-1] - self._tokens_before]
        for name in [name for name, values in measured.items() if all(map(math.isnan, values))]:
            del measured[name]  # the standard deviation of a single value
        super().log(logs, start_time)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> "EpochRepeatSampler":
        # trl's sampler repeats each prompt once per completion.
        repeats = cast("RepeatSampler", super(TrlTrainer, self)._get_train_sampler(train_dataset))
        return EpochRepeatSampler(repeats, self._epoch_to_come)

    def _init_training_state(self, *given: Any) -> tuple[int, int]:
        place = super()._init_training_state(*given)
        self._tokens_before = self.state.num_input_tokens_seen
        return place

    def _generate_and_score_completions(self, inputs: Examples) -> dict[str, Any]:
        self._prompt_ids = [each["prompt_ids"] for each in inputs]
        records = [json.loads(each[RECORD]) for each in inputs]
        # Not as separate columns, whose names could collide with trl's.
        given = [{"prompt": record["prompt"], "columns": record["columns"]} for record in records]
        found: dict[str, Any] = super()._generate_and_score_completions(given)  # type: ignore[misc]
        return found

    def evaluate(self, *given: Any, **named: Any) -> dict[str, float]:
        self._evaluations += 1
        self._evaluated = 0
        self._before_evaluation = present_random_state(self)
        trl: Any = self
        trl._metrics["eval"].clear()  # noqa: SLF001  (of an evaluation that was broken off, which is made anew as a whole)
        return super().evaluate(*given, **named)

    def _generate_single_turn(self, *given: Any, **named: Any) -> object:
        model: Any = self.model
        found: object
        if self._completions is not None:
            found = self._in_form(self._completed(self._completions, self._prompt_ids))
        else:
            found = super()._generate_single_turn(*given, **named)  # type: ignore[misc]
        if model.training:
            self._step_timer.wait_begins()
        return found

    def _completed(self, completions: Completions, prompts: list[list[int]]) -> list[list[int]]:
        """Completions by the engine. All ranks have equally many prompts."""
        trl: Any = self
        first = self.args.process_index * len(prompts)
        use = "train" if trl.model.training else "eval"
        if use == "eval":
            first += self._evaluated
            self._evaluated += self.args.world_size * len(prompts)
        asked = seeded(self._spec, prompts, use, self.state.global_step, first)
        # The best weights are taken between two evaluations after the same step.
        version = f"{self.state.global_step}.{self._evaluations}"
        options = sampling_options(self._spec, trl.eos_token_ids)
        while True:
            try:
                found, values = completions(asked, options, version)
                break
            except BrokenOff:
                self._follow_requests(evaluates=use == "eval")
        if use == "train":
            for name, value in values.items():
                trl._metrics[use][name].append(value)  # noqa: SLF001  (there is no other way in)
        return found

    def _follow_requests(self, *, evaluates: bool) -> None:
        """Between two steps, or before the evaluation of one. Raises StepAbandoned when the run ends."""

        def save() -> None:
            kept = self._before_evaluation if evaluates else None
            if kept is None and self._before_epoch is not None and self._before_epoch[0] == self.state.global_step:
                # What a resumed run draws anew when it begins the epoch is drawn already.
                kept = self._before_epoch[1]
            self.kept_random_state = kept
            self._log_all()
            self.save()
            self.kept_random_state = None

        if self._stop_and_save.ends_here(self.state, self.control, save, evaluates=evaluates):
            raise StepAbandoned

    def _log_all(self) -> None:
        """What was counted since the last log belongs in the checkpoint."""
        model: Any = self.model
        was_training, control = model.training, self.control
        control.should_log, control.should_evaluate, control.should_save = True, False, False
        model.train()
        norm, rate = self._of_last_step
        rest = (model, None, self.state.epoch or 0.0, None, time.time())
        self._maybe_log_save_evaluate(self._tr_loss, norm, *rest, learning_rate=rate)
        control.should_log = False
        model.train(was_training)

    def _maybe_log_save_evaluate(
        self, tr_loss: torch.Tensor, grad_norm: torch.Tensor | float | None, *given: Any, **named: Any
    ) -> None:
        self._of_last_step = grad_norm, named.get("learning_rate")
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *given, **named)

    def _run_epoch(self, *given: Any, **named: Any) -> None:
        self._before_epoch = self.state.global_step, present_random_state(self)
        super()._run_epoch(*given, **named)  # type: ignore[no-untyped-call]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if not self._evaluation_due:
            return
        # Here an evaluation draws what it would have drawn after its step.
        self._evaluation_due = False
        self._stop_and_save.evaluation_begins(self.control)
        self._maybe_log_save_evaluate(self._tr_loss, None, self.model, None, self.state.epoch or 0.0, None, time.time())
        if self.control.should_training_stop:  # by early stopping
            raise StepAbandoned

    def _in_form(self, found: list[list[int]]) -> object:
        """As trl's own method answers."""
        return found

    def _tokenize_prompts(self, _: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return self._prompt_ids, None, {}


class EpochRepeatSampler(Sampler[int]):
    """trl's order of repeated prompts, seeded by the epoch's number.

    trl's own sampler continues the random stream of the previous epoch, which a resumed run does not have.
    """

    def __init__(self, repeats: RepeatSampler, epoch: Callable[[], int]) -> None:
        self._repeats = repeats
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._repeats)

    def __iter__(self) -> Iterator[int]:
        self._repeats.generator.manual_seed((self._repeats.seed or 0) + self._epoch())
        return iter(self._repeats)


def column_names(dataset: Dataset | IterableDataset) -> list[str]:
    """Columns of all records besides their prompts."""
    return sorted({name for record in dataset[RECORD] for name in json.loads(record)["columns"]})
