"""Decides when missing progress is a hang; pure, time is an argument."""

import math
from collections import deque
from dataclasses import dataclass

from config.watchdog import WatchSettings

SAMPLES = 1000  # of its own steps, the newest
# No steps are made in them, for as long as they take.
EVALUATING = "EVALUATING"
SERVING = "SERVING"
PROMPT_FACTOR = 5
LONG_PHASES = frozenset({"CHECKPOINTING", EVALUATING, "EXPORTING"})


@dataclass(frozen=True)
class Limit:
    """Seconds that may pass after ``since`` before it is a hang."""

    since: float
    seconds: float

    def overdue(self, now: float) -> bool:
        return now - self.since > self.seconds


class ProgressWatchdog:
    """Of one attempt. A script can hang only once it reports steps; a built-in trainer from its start on.

    Without ``trains`` a step is a record, and reports come by the shard or by what the engine has generated: durations
    are those between two reports, whatever the number of records. A replica that answers requests announces the time
    without any by a section, which may take forever then. Times are seconds on a monotonic clock.
    """

    def __init__(self, settings: WatchSettings, *, custom: bool, trains: bool = True) -> None:
        self._settings = settings
        self._custom = custom
        self._trains = trains
        self._long_phases = LONG_PHASES if trains else LONG_PHASES - {EVALUATING}
        self._tokens = 0
        self._since = 0.0
        self._step: int | None = None
        self._step_at = 0.0
        self._values_step = -1
        self._first_seconds = 0.0  # until the first report, including start-up
        self._paused_seconds = 0.0  # in long sections, since the last step
        self._step_seconds: deque[float] = deque(maxlen=SAMPLES)
        self._phase = ""
        self._section: tuple[str, float | None] | None = None
        self._offered = 0  # checkpoints whose storing the ranks may be waiting for
        self._asked = 0  # requests to models that the ranks wait for
        self._ended = self._kept = self._left = False

    def begin(self, now: float) -> None:
        """The ranks were started."""
        self._since = self._step_at = now

    @property
    def step(self) -> int | None:
        """The last reported step."""
        return self._step

    def step_made(self, step: int, now: float, *, tokens: int = 0) -> None:
        """Step ``step`` is finished; repeating the same one does not count, unless more ``tokens`` were generated."""
        advances = not self._trains and tokens > self._tokens
        self._tokens = max(tokens, self._tokens)
        if step == self._step and not advances:
            return
        if self._step is None:
            self._first_seconds = now - self._step_at
        elif step > self._step or advances:
            made = step - self._step if self._trains else 1
            self._step_seconds.append((now - self._step_at - self._paused_seconds) / made)
        self._step, self._step_at, self._paused_seconds = step, now, 0.0
        self._since = now

    def values_of(self, step: int, now: float) -> None:
        """Metrics of a new step were reported: rank 0 advances even if it reports progress by the epoch."""
        if self._phase == SERVING:
            return  # they are a replica's load, reported also by one that hangs
        if step > self._values_step:
            self._values_step, self._since = step, now

    def phase(self, name: str, now: float) -> None:
        """Another phase began."""
        self._leave(now)
        self._phase = name
        self._since = now

    def section(self, name: str | None, seconds: float | None, now: float) -> None:
        """Announced work began; ``name`` None: it is over."""
        self._leave(now)
        self._section = None if name is None else (name, seconds)
        self._since = now

    def offered(self, now: float) -> None:
        """A checkpoint waits to be stored: from now on the ranks may wait for the supervisor."""
        self._leave(now)
        self._offered += 1
        self._since = now

    def answered(self, now: float) -> None:
        """One of those was answered."""
        self._leave(now)
        self._offered = max(0, self._offered - 1)
        self._since = now

    def asked(self, now: float) -> None:
        """A rank asks a model: until the answer they may wait for it."""
        self._leave(now)
        self._asked += 1
        self._since = now

    def model_answered(self, now: float) -> None:
        """One of those was answered."""
        self._leave(now)
        self._asked = max(0, self._asked - 1)
        self._since = now

    def ended(self, now: float) -> None:
        """Rank 0 has reported its result: only the exit of all ranks follows."""
        self._ended = True
        self._since = now

    def kept(self) -> None:
        """The ranks have failed, and only their sandbox stays."""
        self._kept = True

    def left(self) -> None:
        """Rank 0 has exited; the ranks of other roles, which report no steps, continue."""
        self._left = True

    def limit(self) -> Limit | None:
        """The current limit; None: nothing is a hang now."""
        if self._kept or self._left:
            return None
        if self._section is not None and self._section[1] is not None:
            return Limit(self._since, self._section[1])
        if self._section is not None and self._phase == SERVING and not self._ended:
            return None
        if self._custom and self._step is None:
            return None
        if self._ended and not self._custom:
            return Limit(self._since, self._settings.stuck_seconds)  # a trainer has nothing to do after its result
        loads = self._step is None and self._section is not None
        if self._is_long() and not loads:
            return Limit(self._since, self._settings.section_seconds)
        return Limit(self._since, self.step_limit_seconds)

    @property
    def step_limit_seconds(self) -> float:
        """Seconds that a step may take: step_seconds, or step_factor times the 99th percentile of earlier steps.

        Durations are known from the second report on: the first may only be the starting point.
        """
        if not self._trains and not self._step_seconds and self._phase == EVALUATING:
            return self._settings.section_seconds  # nothing is known yet of how long a shard takes
        if self._phase == SERVING:  # a long prompt may be read in one step
            return max(PROMPT_FACTOR * self._settings.step_seconds, self._settings.step_factor * self._p99())
        knows = self._step_seconds and self._trains
        least = self._settings.step_seconds if knows else self._settings.first_step_seconds
        return max(least, self._settings.step_factor * (self._p99() or self._first_seconds))

    def doing(self) -> str:
        """What the training does now, for messages."""
        if self._section is not None:
            return f"in its section {self._section[0]!r}"
        if self._ended:
            return "after its last word"
        if self._phase in self._long_phases:
            return f"in {self._phase}"
        if self._phase == SERVING:
            return "answering requests"
        if self._asked:
            return "waiting for the answer of a model"
        if not self._trains:
            return "while its shard is being stored" if self._offered else "working on a shard"
        return "while its checkpoint is being stored" if self._offered else "training"

    def _is_long(self) -> bool:
        return (
            self._ended
            or self._section is not None
            or self._phase in self._long_phases
            or self._offered + self._asked > 0
        )

    def _leave(self, now: float) -> None:
        if self._is_long():
            self._paused_seconds += now - self._since

    def _p99(self) -> float:
        if not self._step_seconds:
            return 0.0
        ranked = sorted(self._step_seconds)
        return ranked[math.ceil(0.99 * len(ranked)) - 1]
