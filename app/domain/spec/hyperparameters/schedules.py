"""Up to which step two trainings have the same learning rate, for schedules of which that is known exactly.

The factors are those of transformers' schedulers, computed by the same operations: a difference in the last bit is one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.spec.hyperparameters.parameter import Value

CONSTANT, WITH_WARMUP, STABLE_DECAY = "constant", "constant_with_warmup", "warmup_stable_decay"
# Their rates do not depend on the number of all steps, or only from the decay on.
COMPARABLE = (CONSTANT, WITH_WARMUP, STABLE_DECAY)
# From the first decay on, steps are compared one by one; two decays that are alike for longer are taken as different.
_MOST_COMPARED = 1_000


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What the factors of a training's learning rate depend on; ``decay`` is 0 where the rate never falls."""

    total: int
    warmup: int
    decay: int
    decay_type: str
    lowest: float

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Schedule | None":
        """None for another schedule, and for a training whose steps are unknown."""
        name, total = str(values["lr_scheduler_type"]), int(values["max_steps"])
        if name not in COMPARABLE or total < 1:
            return None
        falls = name == STABLE_DECAY
        return cls(
            total=total,
            warmup=0 if name == CONSTANT else _warmup_steps(values, total),
            decay=max(1, round(float(values["lr_decay_ratio"]) * total)) if falls else 0,
            decay_type=str(values["lr_decay_type"]),
            lowest=float(values["min_lr_rate"]) if falls else 0.0,
        )

    @property
    def first_decay(self) -> int:
        """The index of the first step whose rate the decay sets."""
        return max(self.warmup, self.total - self.decay)

    def factor(self, step: int) -> float:
        """What the learning rate is multiplied with in this step; the first one is 0."""
        if step < self.warmup:
            return max(0.0, step / max(1, self.warmup) * (1.0 - self.lowest) + self.lowest)
        before = self.total - self.decay
        if not self.decay or step < before:
            return 1.0
        if step >= self.total:
            return self.lowest
        progress = (step - before) / max(1, self.decay)
        return max(0.0, self._fallen(progress) * (1.0 - self.lowest) + self.lowest)

    def _fallen(self, progress: float) -> float:
        if self.decay_type == "linear":
            return 1.0 - progress
        if self.decay_type == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress))
        return 1.0 - math.sqrt(progress)


def steps_with_equal_rates(first: Mapping[str, Value], second: Mapping[str, Value]) -> int:
    """How many steps, from the beginning, have the same factor; 0 where that is unknown. Typed values."""
    a, b = Schedule.of(first), Schedule.of(second)
    if a is None or b is None or a.warmup != b.warmup or (a.warmup and a.lowest != b.lowest):
        return 0
    total = min(a.total, b.total)
    step = min(total, a.first_decay, b.first_decay)
    last = min(total, step + _MOST_COMPARED)
    while step < last and a.factor(step) == b.factor(step):
        step += 1
    return step


def _warmup_steps(values: Mapping[str, Value], total: int) -> int:
    given = int(values["warmup_steps"])
    return given or math.ceil(total * float(values["warmup_ratio"]))
