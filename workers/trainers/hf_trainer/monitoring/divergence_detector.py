"""When a training has gone wrong for good: its loss is no number any more, or has exploded and does not come back.

The bound is Hampel's for outliers (the median and a multiple of the median absolute deviation, which a few wild values
don't move), with a floor. What is done about it is what was done by hand for OPT-175B (Zhang et al. 2022, section 2.5):
back to an earlier checkpoint, on with a lower learning rate.
"""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from workers.trainers.failures import Diverged, NonFiniteLoss

# One batch may overflow and be survived; weights that are NaN stay so, and every further step is wasted.
NON_FINITE_TOLERATED = 5
# Spikes of some steps are common and pass (PaLM, Chowdhery et al. 2022, section 5.1).
HIGH_TOLERATED = 9
REMEMBERED = 100
# Fewer losses than that don't say yet what is usual.
ENOUGH = 20
# In nats, as a loss is: a perplexity more than 7 times as high as before. Other data may well double it.
FLOOR = 2.0
# Above the very first loss, while the rate still rises and until enough is known: far more than guessing costs, which
# is 12 for 200 000 tokens.
EARLY_FLOOR = 20.0
DEVIATIONS = 8.0
_SIGMA = 1.4826  # of a normal distribution, in median absolute deviations

_WAY_OUT = (
    "lower learning_rate or max_grad_norm, lengthen warmup_steps, look at the data around there; with "
    "training_config.on_divergence the job can go back to its last good checkpoint by itself"
)


class LossWatch:
    """Looks at the loss of each log entry, the same on every rank; raises when it is time to end."""

    def __init__(self, document: Mapping[str, Any] | None = None, *, has_trend: bool = True) -> None:
        """Without a trend, as in RLHF, a loss says nothing by its height."""
        self._has_trend = has_trend
        known = document or {}
        self._calm: deque[float] = deque(map(float, known.get("calm") or ()), maxlen=REMEMBERED)
        # What was usual when the training had settled: a loss that creeps up takes the recent median with it.
        self._settled: float | None = known.get("settled")
        self._first = float(known.get("first") or 0.0)  # of the weights that the training began with
        self._high = int(known.get("high") or 0)
        self._non_finite = int(known.get("non_finite") or 0)
        self._since = int(known.get("since") or 0)
        # Since when the gradients are no numbers; the weights are none from the same step on, the loss from the next.
        self._lost_since = int(known.get("lost_since") or 0)

    def to_document(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
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
    def suspects(self) -> bool:
        """Whether the last step was not as it should be: weights of such a moment are none to go back to."""
        return bool(self._high or self._non_finite or self._lost_since)

    def see(self, step: int, loss: float, *, gradient_norm: float = 0.0, warming_up: bool) -> None:
        """Raises NonFiniteLoss, Diverged; ``gradient_norm`` is that of the step that was made with the loss."""
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
        if self._settled is None and len(self._calm) >= ENOUGH and not warming_up:
            self._settled = median(self._calm)

    def _bound(self, loss: float, *, warming_up: bool) -> float:
        """What a loss may be, as far as it matters for this one."""
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
