"""How long a training still takes, by the speed of its newest steps; pure, time is given."""

import math

# Older steps count for less and less, so that a change of speed shows within minutes and one slow step does not.
MEMORY_SECONDS = 120.0
TRAINING = "TRAINING"


class Eta:
    """Fed with progress and phases. Evaluating and saving is no training time: it says nothing about the next steps."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._since = 0.0  # when that step was reported; moved on by every standstill
        self._stands_since: float | None = None
        self._seconds = self._steps = 0.0  # both fade

    def phase(self, name: str, now: float) -> None:
        """A change of phase; only in TRAINING steps are made."""
        if name != TRAINING:
            self._stands_since = now if self._stands_since is None else self._stands_since
        elif self._stands_since is not None:
            self._since += now - self._stands_since
            self._stands_since = None

    def progress(self, step: int, now: float) -> None:
        """So many steps are done. The first report is where an attempt starts from, not what it did."""
        at = now if self._stands_since is None else self._stands_since
        if self._step is None or step < self._step:
            self._seconds = self._steps = 0.0
        elif step == self._step:
            return
        else:
            seconds = max(0.0, at - self._since)
            fade = math.exp(-seconds / MEMORY_SECONDS)
            self._seconds = self._seconds * fade + seconds
            self._steps = self._steps * fade + step - self._step
        self._step, self._since = step, at

    def seconds(self, total_steps: int | None) -> float | None:
        """From the newest step to the end; None before it can be told."""
        if total_steps is None or self._step is None or not self._steps:
            return None
        return round(max(0, total_steps - self._step) * self._seconds / self._steps, 1)
