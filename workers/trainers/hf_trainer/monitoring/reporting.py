"""Reports progress and metrics of a Hugging Face trainer after every step."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from app.domain.lifecycle.checkpoints import scores
from app.domain.spec import metrics
from workers.rank.run_context import Progress, RunContext
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.monitoring.divergence_detector import DivergenceDetector

_TRAIN_METRICS = frozenset((*metrics.EVERY, "learning_rate", "grad_norm"))
_EVAL_METRICS = frozenset(metrics.EVAL_PREFIX + name for name in metrics.EVERY)
_LOG_SECONDS = 2.0
_LOG_ENTRIES_KEPT = 20


@dataclass
class Totals:
    """Totals over the whole run; stored in every checkpoint."""

    tokens: int = 0
    loss_sum: float = 0.0
    losses: int = 0

    @classmethod
    def restored(cls, data_position: Mapping[str, Any]) -> "Totals":
        known = {name: data_position[name] for name in cls.__dataclass_fields__ if name in data_position}
        # A NaN sum is serialized as a string.
        return cls(**{**known, "loss_sum": float(known.get("loss_sum", 0.0))})

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


class Reporting(TrainerCallback):
    """Converts trainer events to reports; holds the run's totals and latest metrics."""

    def __init__(
        self,
        context: RunContext,
        totals: Totals,
        records_per_step: int,
        watch: DivergenceDetector | None = None,
        gathered_values: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self.totals = totals
        self.records_per_step = records_per_step
        self.watch = watch or DivergenceDetector()
        self.latest: dict[str, float] = {}
        self.evaluated_step = -1
        self._context = context
        self._gathered_values = gathered_values
        self._tokens_before = totals.tokens
        self._logged_tokens = totals.tokens
        self._logged_step = 0
        self._mark = self._step_ended = self._printed_at = time.monotonic()

    @property
    def final_metrics(self) -> dict[str, float]:
        """The latest value of each metric, and the mean loss over the run."""
        mean = self.totals.loss_sum / self.totals.losses if self.totals.losses else math.nan
        return {**self.latest, "train_loss": mean}

    def metrics_at(self, step: int) -> dict[str, float]:
        """The latest metrics that describe the weights after `step`; excludes evaluations of earlier weights."""
        measured = self.evaluated_step == step
        found = {name: value for name, value in self.latest.items() if measured or not name.startswith("eval_")}
        if self.watch.is_suspect:
            # A rollback after divergence searches for weights with a finite loss.
            found["loss"] = math.nan
        return found

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._logged_step = state.global_step
        self._mark = self._step_ended = time.monotonic()
        self._report_progress(state)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._step_ended = time.monotonic()
        self._report_progress(state)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.evaluated_step = state.global_step
        self._skip_standstill()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._skip_standstill()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        # The log history is written into every checkpoint; with an entry per step it would soon dominate it.
        del state.log_history[:-_LOG_ENTRIES_KEPT]
        logs = logs or {}
        if "loss" in logs:
            self._report(state.global_step, self._train_metrics(args, state, logs), self._gathered_values())
            # The tokens of this step are counted only now.
            self._report_progress(state)
            warming_up = state.global_step <= args.get_warmup_steps(state.max_steps)
            # With float16, a step with overflowing gradients is skipped and the weights stay unchanged.
            norm = 0.0 if args.fp16 else float(logs.get("grad_norm", 0.0))
            self.watch.observe(state.global_step, float(logs["loss"]), gradient_norm=norm, warming_up=warming_up)
        elif "eval_loss" in logs:
            self._report(state.global_step, _evaluated(logs))

    def _report_progress(self, state: TrainerState) -> None:
        progress = Progress(
            step=state.global_step,
            total_steps=state.max_steps,
            epoch=state.epoch or 0.0,
            total_epochs=_total_epochs(state),
            tokens=self.totals.tokens,
        )
        self._context.report_progress(progress)

    def _train_metrics(self, args: TrainingArguments, state: TrainerState, logs: dict[str, float]) -> dict[str, float]:
        steps = state.global_step - self._logged_step
        seconds = max(self._step_ended - self._mark, 1e-9)
        if "num_tokens" in logs:
            # trl counts from the start of this process.
            self.totals.tokens = self._tokens_before + int(logs["num_tokens"])
        self.totals.loss_sum += logs["loss"] * steps
        self.totals.losses += steps
        samples = steps * self.records_per_step
        known = (name for name in logs if name in _TRAIN_METRICS or name.startswith(metrics.OF_GRADERS))
        values = {name: float(logs[name]) for name in known}
        values |= {
            "step_seconds": seconds / max(steps, 1),
            "samples_per_second": samples / seconds,
            "tokens_per_second": (self.totals.tokens - self._logged_tokens) / seconds,
            "epoch": float(state.epoch or 0.0),
            "tokens": float(self.totals.tokens),
        }
        self._mark, self._logged_step, self._logged_tokens = self._step_ended, state.global_step, self.totals.tokens
        return values

    def _report(self, step: int, values: dict[str, float], of_ranks: Mapping[str, float] | None = None) -> None:
        """Report metrics; values per rank do not describe the model, so neither its card nor a checkpoint contains
        them.
        """
        self.latest |= values
        self._context.report_metrics(step, {**values, **(of_ranks or {})})
        now = time.monotonic()
        if self._context.rank == 0 and ("eval_loss" in values or now - self._printed_at >= _LOG_SECONDS):
            self._printed_at = now
            shown = ("loss", "eval_loss", "learning_rate", "tokens_per_second")
            pairs = "  ".join(f"{name} {values[name]:.4g}" for name in shown if name in values)
            print(f"step {step}  {pairs}", flush=True)  # noqa: T201  (the job's log is stdout)

    def _skip_standstill(self) -> None:
        """Exclude evaluating and saving from the training time."""
        now = time.monotonic()
        self._mark += now - self._step_ended
        self._step_ended = now


def _evaluated(logs: Mapping[str, float]) -> dict[str, float]:
    of_graders = metrics.EVAL_PREFIX + metrics.OF_GRADERS
    return {name: value for name, value in logs.items() if name in _EVAL_METRICS or name.startswith(of_graders)}


def score_of(latest: Mapping[str, float], metric: str, *, greater_is_better: bool) -> float | None:
    """The evaluation score by metric_for_best_model; higher is better. Raises InvalidConfig."""
    if metric not in latest and f"eval_{metric}" not in latest:
        known = ", ".join(sorted(latest))
        raise InvalidConfig(f"metric_for_best_model {metric} is not measured; there are {known}")
    return scores([latest], metric, greater_is_better=greater_is_better)[0]


def _total_epochs(state: TrainerState) -> float | None:
    """The number of epochs that the planned steps make, known once the first step has determined the length of an
    epoch.
    """
    if not state.epoch or not state.global_step:
        return None
    return round(state.epoch * state.max_steps / state.global_step, 2)
