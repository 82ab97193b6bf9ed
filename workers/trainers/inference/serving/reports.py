"""What a replica reports while it serves: steps, load and speed, or that it is idle."""

import contextlib
import time
from collections.abc import Callable

from trainyard.protocol.messages import MAX_STEP
from workers.rank.run_context import Progress, RunContext
from workers.trainers.inference.serving.requests import LoopCounts, Steps

_REPORT_SECONDS = 2.0
_IDLE = "idle"


class Reports:
    """`step` and `batch` are called on the thread of the loop, all else on the trainer's."""

    def __init__(self, context: RunContext, now: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._now = now
        self._loop = Steps(steps=0, tokens=0)
        self._batches = 0
        self._reported = self._loop
        self._reported_at = now()
        self._point = 0  # the step of the last metrics
        self._had_work = True  # so that a first point says that there is nothing to do
        self._idle = contextlib.ExitStack()
        self._is_idle = False

    @property
    def made(self) -> Steps:
        """Steps of the loop, and batches of texts of which vectors were computed."""
        loop = self._loop
        return Steps(steps=loop.steps + self._batches, tokens=loop.tokens)

    def step(self, made: Steps) -> None:
        """The loop's totals after a step."""
        self._loop = made

    def batch(self) -> None:
        """A batch of texts begins."""
        self._batches += 1

    def update(self, counts: LoopCounts, *, works: bool) -> None:
        """To be called often; reports when it is time. While it ``works``, a time without steps is a hang."""
        # A client that reads slowly has its answer already: what has no steps to make is no hang.
        self._announce(works=bool(counts.in_flight or counts.waiting))
        now = self._now()
        if now - self._reported_at < _REPORT_SECONDS:
            return
        made = self.made
        if made != self._reported:
            self._context.report_progress(Progress(step=min(made.steps, MAX_STEP), tokens=made.tokens))
        if works or self._had_work or made != self._reported:
            self._report(counts, (made.tokens - self._reported.tokens) / (now - self._reported_at))
        self._had_work = works
        self._reported, self._reported_at = made, now

    def close(self) -> None:
        self._idle.close()

    def _report(self, counts: LoopCounts, speed: float) -> None:
        # Several points of one step would replace each other.
        self._point = min(max(self.made.steps, self._point + 1), MAX_STEP)
        held = {"in_flight": counts.in_flight, "waiting": counts.waiting, "adapters": counts.adapters}
        values = {**{name: float(count) for name, count in held.items()}, "tokens_per_second": speed}
        self._context.report_metrics(self._point, values)

    def _announce(self, *, works: bool) -> None:
        if works and self._is_idle:
            self._idle.close()
        elif not works and not self._is_idle:
            self._idle.enter_context(self._context.section(_IDLE))
        self._is_idle = not works
