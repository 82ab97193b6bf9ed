"""Estimated remaining training time from the speed of the newest steps; pure, time is an argument."""

import math

# Older steps count for less and less, so that a change of speed shows within minutes and one slow step does not.
MEMORY_SECONDS = 120.0
TRAINING = "TRAINING"


class Eta:
    """Fed with progress and phases. Time of evaluating and saving does not count."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._since = 0.0  # when that step was reported, shifted by every interruption
        self._stands_since: float | None = None
        self._seconds = self._steps = 0.0  # both decay

    def phase(self, name: str, now: float, *, works: bool | None = None) -> None:
        """Enter a phase; ``works``: steps are made in it. By default they are in TRAINING only."""
        if not (name == TRAINING if works is None else works):
            self._stands_since = now if self._stands_since is None else self._stands_since
        elif self._stands_since is not None:
            self._since += now - self._stands_since
            self._stands_since = None

    def progress(self, step: int, now: float) -> None:
        """Record finished steps. The first report is where the attempt starts."""
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
        """Seconds from the newest step to the end; None when unknown."""
        if total_steps is None or self._step is None or not self._steps:
            return None
        return round(max(0, total_steps - self._step) * self._seconds / self._steps, 1)
