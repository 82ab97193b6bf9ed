"""Halts of a job's document in a script: steps after which every rank saves and ends, without any message."""

from collections.abc import Sequence

NEVER_HALTED = (
    "the job's document names steps at which it halts (training_config.halt_at, or early_stopping.losers: pause and "
    "pbt of its sweep), which a script does by trainyard.hooks, and this one has reported no step by them: at every "
    "step call run.should_stop(step=…), and when it returns True save a checkpoint and end"
)


class HaltMissed(RuntimeError):
    """The script does not stop exactly where its job's document says."""


class Halts:
    """One rank's halts that are still to come; each rank knows them from the document."""

    def __init__(self, steps: Sequence[int], *, start_step: int, ranks: int) -> None:
        """Halts up to ``start_step``, where the run begins, never come."""
        self._ahead = [step for step in steps if step > start_step]
        self._ranks = ranks
        self._start_step = start_step
        self._reported = start_step
        self._missed: HaltMissed | None = None

    @property
    def ahead(self) -> tuple[int, ...]:
        """In ascending order."""
        return tuple(self._ahead)

    def reached(self, step: int) -> None:
        """The script reports this step. Raises HaltMissed after the next halt."""
        self._reported = max(self._reported, step)
        if self._ahead and step > self._ahead[0]:
            raise self._miss(
                f"step {step} is past {self._ahead[0]}, where the job halts: at every step call "
                "run.should_stop(step=…), and when it returns True save a checkpoint and end"
            )

    def due(self, step: int | None) -> int | None:
        """The halt that this step boundary is, None if it is none.

        Without ``step``: after the last step that was reported, which other ranks need not know. Raises HaltMissed.
        """
        if not self._ahead:
            return None
        if step is None and self._ranks > 1:
            raise self._miss(
                "the job halts at steps, which each of its ranks has to know: call run.should_stop(step=…) on all ranks"
            )
        at = self._reported if step is None else step
        self.reached(at)
        return at if at == self._ahead[0] else None

    def pass_by(self) -> None:
        """The run continues past its next halt."""
        self._ahead.pop(0)

    def check(self, *, by_itself: bool) -> None:
        """Raise HaltMissed at the end of a script that has caught one, or that ends by itself and has reported no step.

        One that begins at a checkpoint may have no step left to make.
        """
        if self._missed is not None:
            raise self._missed
        if by_itself and self._ahead and self._reported == self._start_step == 0:
            raise HaltMissed(NEVER_HALTED)

    def _miss(self, message: str) -> HaltMissed:
        """The script may catch the error, and continue."""
        self._missed = HaltMissed(message)
        return self._missed
