"""Coordinates a stop across all ranks of a script, and abandons it when its checkpoint cannot be saved."""

import contextlib
import traceback
from collections.abc import Iterator

from trainyard._hooks.agreement import Agreement
from trainyard._hooks.failures import error_type
from trainyard._hooks.halts import HaltMissed, Halts
from trainyard.protocol.commands import CheckpointNotSaved, Stop
from trainyard.protocol.messages import HALT
from trainyard.protocol.session import Session

# Precedence when ranks received different requests.
_STRONGEST_FIRST = ("cancel", "pause", "requeue")


class StopCoordinator:
    """One rank's part. A pause without a checkpoint would lose steps, so a pause that cannot be saved is abandoned.

    So is a halt, unless the ranks are on several nodes, where they can't agree to continue: there the run fails.
    """

    def __init__(self, session: Session, agreement: Agreement | None, halts: Halts) -> None:
        self.reason: str | None = None
        self.halt: int | None = None  # the step of the halt that is the reason
        self._session = session
        self._agreement = agreement
        self._halts = halts
        self._saved_step: int | None = None
        self._leads = session.identity.rank == 0
        self._number = agreement.abandoned_stops() if agreement else 0
        self._repeats = 0
        self._unsaved: Exception | None = None

    def due(self, step: int | None = None) -> bool:
        """Ask once, after ``step``; the same call returns the same answer on all ranks. Raises HaltMissed."""
        if self.reason is not None:
            if self._holds():
                return True
            self._go_on()
            return False
        is_requested, halt = self._is_requested(), self._halts.due(step)
        self.reason = self._why() if is_requested else None
        # A request that can wait for a checkpoint is met by the halt, which all ranks know.
        if halt is not None and self.reason != "cancel":
            self.reason, self.halt = HALT, halt
            return True
        if self.reason is None:
            return False
        # One rank decides whether it was abandoned meanwhile: others may not know yet.
        if not self._holds():
            self._go_on()
        return self.reason is not None

    def spread(self) -> None:
        """Propagate this rank's requests to the other ranks; runs on the reader thread."""
        if self._agreement is None:
            return
        commands = self._session.commands
        for given_up in range(self._number, commands.given_up + 1):
            # All ranks pass it at the same boundary, including those that never received the request.
            self._agreement.propose("stop", given_up, reason="pause")
        stop = commands.stop
        if stop is not None:
            number = self._number if stop.kind == "cancel" else stop.number
            self._agreement.propose("stop", number, reason=stop.kind)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Wraps a save. A failing save that a pause requested ends the pause instead of the run."""
        try:
            yield
            if self._may_go_on():
                self._session.wait_stored()
        except Exception as error:
            if not self._may_go_on():
                raise
            traceback.print_exc()
            self._unsaved = error
            if self.reason == "pause":
                self._session.pause_failed(self._number, f"{type(error).__name__}: {error}")

    def saves(self, step: int) -> None:
        """A checkpoint of this step begins. Raises HaltMissed if it is not one of the halt that it is for."""
        if self.halt is not None and step != self.halt:
            raise HaltMissed(
                f"the run halts at step {self.halt}, and saves step {step}: report a step, or pass it to "
                "run.should_stop, when it is finished, and save it before the next one"
            )

    def saved(self, step: int) -> None:
        """A checkpoint of this step is complete."""
        self._saved_step = step

    def check(self) -> None:
        """The script ends: as if it had saved, without asking again? Raises CheckpointNotSaved or HaltMissed."""
        if self._leads and self.reason != "cancel":
            self._halts.check(by_itself=self.reason is None)
        if self._leads and self._unsaved is not None:
            message = f"the script ended for a {self.reason} whose checkpoint could not be saved: {self._unsaved}"
            raise CheckpointNotSaved(message, error_type(self._unsaved, otherwise="STORAGE_ERROR"))
        if self._leads and self.halt is not None and self.halt != self._saved_step:
            message = (
                f"the script ended at its halt without saving a checkpoint of step {self.halt}: save it by "
                f"run.checkpoint(step={self.halt}) when run.should_stop returns True"
            )
            raise HaltMissed(message)

    def _may_go_on(self) -> bool:
        stop = self._session.commands.stop
        can_agree = self._agreement is not None or self._session.identity.world_size == 1
        may = self.reason == "pause" or (self.reason == HALT and can_agree)
        return may and (stop is None or (stop.kind == "pause" and not stop.force))

    def _is_requested(self) -> bool:
        if self._agreement is not None:
            return self._agreement.due("stop", self._number)
        stop = self._session.commands.stop
        if stop is not None:
            self._number = stop.number
        return stop is not None

    def _holds(self) -> bool:
        """Whether the stop is still valid; rank 0 decides, because it saves."""
        given_up = self.reason == "pause" and self._number <= self._session.commands.given_up
        holds = self._unsaved is None and not given_up
        if self._agreement is None:
            return holds
        self._repeats += 1
        stop = str(self._number) if self.halt is None else f"halt-{self.halt}"
        question = f"{stop}-{self._repeats}"
        if not self._leads:
            return self._agreement.answered(question) != "no"
        if not holds and self.halt is None:
            self._agreement.abandon_stop(self._number)
        self._agreement.answer(question, "yes" if holds else "no")
        return holds

    def _go_on(self) -> None:
        if self.halt is not None:
            self._pass_halt()
            return
        given_up = Stop("pause", save_checkpoint=True, number=self._number)
        self.reason, self._unsaved = None, None
        self._number, self._repeats = self._number + 1, 0
        self._session.commands.forget(given_up)

    def _pass_halt(self) -> None:
        message = f"continues past its halt, as its checkpoint is not stored: {self._unsaved}"
        self._session.note("CHECKPOINT_FAILED", message, {"step": self.halt})
        self._halts.pass_by()
        self.reason, self.halt, self._unsaved, self._repeats = None, None, None, 0

    def _why(self) -> str:
        """The stop's kind, equal on all ranks; a rank that was cancelled meanwhile does not wait for the others."""
        stop = self._session.commands.stop
        heard = {stop.kind} if stop is not None else set()
        if self._agreement and "cancel" not in heard:
            heard = self._agreement.reasons("stop", self._number)
        # No request is left: the pause was abandoned just now.
        return next((kind for kind in _STRONGEST_FIRST if kind in heard), "pause")
