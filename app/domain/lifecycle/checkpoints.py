"""Which checkpoints to keep and which is best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.spec.metrics import BEST

# Of a job that names none, and whose training type has none of its own; without validation data nothing is best.
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

    @property
    def age(self) -> tuple[int, int]:
        """Rises with time: an attempt that went on from an older checkpoint saves lower steps than the one before."""
        return self.attempt, self.step


def best(checkpoints: Sequence[RetainedCheckpoint]) -> RetainedCheckpoint | None:
    """The one with the highest score; of equals the newest. None when nothing was scored."""
    scored = [c for c in checkpoints if c.score is not None]
    return max(scored, key=lambda c: (c.score or 0.0, c.age), default=None)


def to_prune(checkpoints: Sequence[RetainedCheckpoint], *, limit: int) -> list[RetainedCheckpoint]:
    """Those to delete so that at most ``limit`` stay; never the newest, the best or a pinned one."""
    by_age = sorted(checkpoints, key=lambda c: c.age)
    protected = {c.checkpoint_id for c in by_age if c.pinned} | {c.checkpoint_id for c in by_age[-1:]}
    if (top := best(checkpoints)) is not None:
        protected.add(top.checkpoint_id)
    surplus = len(by_age) - max(limit, 1)
    candidates = [c for c in by_age if c.checkpoint_id not in protected]
    return candidates[: max(surplus, 0)]


def scores(measured: Sequence[Mapping[str, float]], metric: str, *, greater_is_better: bool) -> list[float | None]:
    """Of each checkpoint by its metrics, higher is better; None where it was not measured.

    ``loss`` means ``eval_loss`` as soon as one of them was evaluated: a loss in training compares with none of those.
    """
    evaluated = f"eval_{metric}"
    name = evaluated if any(evaluated in metrics for metrics in measured) else metric
    values = [metrics.get(name) for metrics in measured]
    sign = 1 if greater_is_better else -1
    return [None if value is None or math.isnan(value) else sign * value for value in values]


def best_rule(settings: Mapping[str, Any], method: str) -> tuple[str, bool]:
    """The metric that decides, and whether more of it is better, by a job's output_config.checkpoint.

    `method` is a built-in trainer's, by rlhf.method_of: nobody knows what a script measures.
    """
    metric = settings.get("metric_for_best_model") or BEST.get(method, DEFAULT_BEST_METRIC)
    greater = settings.get("greater_is_better")
    return metric, not metric.endswith(_LOWER_IS_BETTER) if greater is None else bool(greater)
