"""Early stopping on the metric that also selects the best checkpoint."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from app.domain.lifecycle.checkpoints import best_rule
from workers.rank.run_context import RunContext, method_of
from workers.rank.spec_sections import output_config
from workers.trainers.hf_trainer.monitoring.reporting import Reporting, score_of


class EarlyStopCallback(TrainerCallback):
    """Counts evaluations without improvement; the count is stored in every checkpoint.

    Added after `Reporting`, whose latest metrics it compares, and before `StopAndSaveCallback`.
    """

    def __init__(self, context: RunContext, reporting: Reporting) -> None:
        values = context.spec.hyperparameters
        self.stopped = False
        self._patience = int(values.get("early_stopping_patience", 0))
        self._threshold = float(values.get("early_stopping_threshold", 0.0))
        self._metric, self._greater_is_better = best_rule(
            output_config(context.spec).checkpoint, method_of(context.spec)
        )
        self._reporting = reporting
        self._leads = context.rank == 0
        self._best: float | None = None
        self._without_improvement = 0
        manifest = context.resume_manifest()
        # A new job that resumes this checkpoint has its own patience.
        if manifest is not None and context.taken_over() is None:
            self._restore(manifest.data_position.get("early_stopping") or {})

    def to_document(self) -> dict[str, Any]:
        return {"best": self._best, "without_improvement": self._without_improvement, "stopped": self.stopped}

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._patience or self.stopped or "eval_loss" not in (metrics or {}):
            return
        self._judge()
        if self._without_improvement >= self._patience:
            self.stopped = control.should_training_stop = True
            # Save the last step too when checkpoints are enabled.
            control.should_save = control.should_save or args.save_strategy != "no"
            self._log(state.global_step)

    def _judge(self) -> None:
        found = score_of(self._reporting.latest, self._metric, greater_is_better=self._greater_is_better)
        if found is not None and (self._best is None or found > self._best + self._threshold):
            self._best, self._without_improvement = found, 0
        else:
            self._without_improvement += 1

    def _restore(self, document: Mapping[str, Any]) -> None:
        best = document.get("best")
        self._best = None if best is None else float(best)
        self._without_improvement = int(document.get("without_improvement", 0))
        self.stopped = bool(document.get("stopped", False))

    def _log(self, step: int) -> None:
        if self._leads:
            text = f"early stopping at step {step}: {self._metric} did not improve in {self._patience} evaluations"
            print(text, flush=True)  # noqa: T201  (the job's log is stdout)
