"""Detects a diverged training: the loss is not finite, or has exploded and does not recover.

The bound is Hampel's outlier bound (the median plus a multiple of the median absolute deviation, which single outliers
do not move), with a floor. The reaction follows the manual procedure for OPT-175B (Zhang et al. 2022, section 2.5):
return to an earlier checkpoint and continue with a lower learning rate.
"""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from workers.trainers.failures import Diverged, NonFiniteLoss

# A single overflowing batch is harmless; NaN weights stay NaN, and every further step is wasted.
NON_FINITE_TOLERATED = 5
# Spikes of a few steps are common and recover (PaLM, Chowdhery et al. 2022, section 5.1).
HIGH_TOLERATED = 9
WINDOW = 100
# With fewer losses the usual range is unknown.
MIN_LOSSES = 20
# In nats, like the loss: a perplexity more than 7 times as high. Other data can double it.
FLOOR = 2.0
# Above the first loss, during warm-up and until enough losses are known: well above uniform guessing, which is 12 for
# 200 000 tokens.
EARLY_FLOOR = 20.0
DEVIATIONS = 8.0
_SIGMA = 1.4826  # of a normal distribution, in median absolute deviations

_WAY_OUT = (
    "lower learning_rate or max_grad_norm, lengthen warmup_steps, check the data around there; with "
    "training_config.on_divergence the job can return to its last good checkpoint automatically"
)


class DivergenceDetector:
    """Checks the loss of each log entry, identically on every rank, and raises when the training has diverged."""

    def __init__(self, document: Mapping[str, Any] | None = None, *, has_trend: bool = True) -> None:
        """``has_trend`` is false for RLHF, where the level of the loss carries no information."""
        self._has_trend = has_trend
        known = document or {}
        self._calm: deque[float] = deque(map(float, known.get("calm") or ()), maxlen=WINDOW)
        # The loss level once the training had settled: a slowly rising loss would raise the recent median with it.
        self._settled: float | None = known.get("settled")
        self._first = float(known.get("first") or 0.0)  # with the initial weights
        self._high = int(known.get("high") or 0)
        self._non_finite = int(known.get("non_finite") or 0)
        self._since = int(known.get("since") or 0)
        # The first step of non-finite gradients; the weights are not finite from that step on, the loss from the next.
        self._lost_since = int(known.get("lost_since") or 0)

    def to_document(self) -> dict[str, Any]:
        """The state to store in a checkpoint."""
        return {
            "calm": list(self._calm),
            "first": self._first,
            "settled": self._settled,
            "high": self._high,
            "non_finite": self._non_finite,
            "since": self._since,
            "lost_since": self._lost_since,
        }

    @property
    def is_suspect(self) -> bool:
        """Whether the last step looked wrong: its weights are unsuitable for a rollback."""
        return bool(self._high or self._non_finite or self._lost_since)

    def observe(self, step: int, loss: float, *, gradient_norm: float = 0.0, warming_up: bool) -> None:
        """Check one log entry. Raises NonFiniteLoss and Diverged; ``gradient_norm`` is that of the step that produced
        the loss.
        """
        if math.isfinite(gradient_norm):
            self._lost_since = 0
        elif not self._lost_since:
            self._lost_since = step
        if not math.isfinite(loss):
            self._count_non_finite(step, loss)
            return
        self._non_finite = 0
        bound = self._bound(loss, warming_up=warming_up)
        if loss > bound:
            self._count_high(step, loss, bound)
            return
        self._high = 0
        if not self._calm:
            self._first = loss
        self._calm.append(loss)
        if self._settled is None and len(self._calm) >= MIN_LOSSES and not warming_up:
            self._settled = median(self._calm)

    def _bound(self, loss: float, *, warming_up: bool) -> float:
        """The upper bound that applies to this loss."""
        if not self._calm or not self._has_trend:
            return math.inf
        if warming_up or self._settled is None:
            return self._first + EARLY_FLOOR
        usual = median(self._calm)
        level = min(usual, self._settled)
        if loss <= level + FLOOR:
            return level + FLOOR
        deviation = _SIGMA * median(abs(known - usual) for known in self._calm)
        return level + max(FLOOR, DEVIATIONS * deviation)

    def _count_non_finite(self, step: int, loss: float) -> None:
        self._non_finite += 1
        if not self._high and self._non_finite == 1:
            self._since = self._lost_since or step
        if self._non_finite > NON_FINITE_TOLERATED:
            raise NonFiniteLoss(
                f"the loss went wrong at step {self._since}, and was {loss} in {self._non_finite} logged steps: "
                f"{_WAY_OUT}"
            )

    def _count_high(self, step: int, loss: float, bound: float) -> None:
        self._high += 1
        if self._high == 1:
            self._since = step
        if self._high > HIGH_TOLERATED:
            raise Diverged(
                f"the loss exploded at step {self._since}: since then it was above {bound:.4g} in {self._high} logged "
                f"steps, and is {loss:.4g} now, after {median(self._calm):.4g} before: {_WAY_OUT}"
            )
