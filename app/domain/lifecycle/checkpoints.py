"""Checkpoint retention, and the choice of the best one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.spec.metrics import BEST
from app.domain.spec.model import CheckpointConfig

# Default of jobs that name no metric and whose training type has none; without validation data no checkpoint is best.
DEFAULT_BEST_METRIC = "eval_loss"
_LOWER_IS_BETTER = ("loss", "perplexity")


@dataclass(frozen=True, kw_only=True)
class RetainedCheckpoint:
    """A recorded checkpoint as retention sees it; ``score`` is the metric that decides the best, higher is better."""

    checkpoint_id: str
    step: int
    attempt: int = 1
    score: float | None = None
    pinned: bool = False
    kept: bool = False  # at a step of the document's save_at: neither counted nor deleted

    @property
    def age(self) -> tuple[int, int]:
        """Sort key by time: an attempt that resumed from an older checkpoint saves lower steps than the one before."""
        return self.attempt, self.step


def best(checkpoints: Sequence[RetainedCheckpoint]) -> RetainedCheckpoint | None:
    """The checkpoint with the highest score; ties go to the newest. None when none was scored."""
    scored = [c for c in checkpoints if c.score is not None]
    return max(scored, key=lambda c: (c.score or 0.0, c.age), default=None)


def to_prune(checkpoints: Sequence[RetainedCheckpoint], *, limit: int) -> list[RetainedCheckpoint]:
    """The checkpoints to delete so that at most ``limit`` stay besides the kept ones; never the newest, the best or a
    pinned one.
    """
    by_age = sorted(checkpoints, key=lambda c: c.age)
    protected = {c.checkpoint_id for c in by_age if c.pinned} | {c.checkpoint_id for c in by_age[-1:]}
    if (top := best(checkpoints)) is not None:
        protected.add(top.checkpoint_id)
    counted = [c for c in by_age if not c.kept]
    surplus = len(counted) - max(limit, 1)
    candidates = [c for c in counted if c.checkpoint_id not in protected]
    return candidates[: max(surplus, 0)]


def scores(measured: Sequence[Mapping[str, float]], metric: str, *, greater_is_better: bool) -> list[float | None]:
    """Score of each checkpoint, higher is better; None where the metric was not measured.

    ``loss`` means ``eval_loss`` once any of them was evaluated: a training loss is not comparable with those.
    """
    evaluated = f"eval_{metric}"
    name = evaluated if any(evaluated in metrics for metrics in measured) else metric
    values = [metrics.get(name) for metrics in measured]
    sign = 1 if greater_is_better else -1
    return [None if value is None or math.isnan(value) else sign * value for value in values]


def best_rule(settings: CheckpointConfig, method: str) -> tuple[str, bool]:
    """The metric for the best checkpoint, and whether greater is better, from a job's output_config.checkpoint.

    `method` is that of a built-in trainer, by rlhf.method_of; metrics of scripts are unknown.
    """
    metric = settings.metric_for_best_model or BEST.get(method, DEFAULT_BEST_METRIC)
    greater = settings.greater_is_better
    return metric, not metric.endswith(_LOWER_IS_BETTER) if greater is None else bool(greater)
