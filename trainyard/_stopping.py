"""Coordinates a stop across all ranks of a script, and abandons it when its checkpoint cannot be saved."""

import contextlib
import traceback
from collections.abc import Iterator

from trainyard._agreement import Agreement
from trainyard._failures import error_type
from trainyard.protocol.commands import CheckpointNotSaved, Stop
from trainyard.protocol.session import Session

# Precedence when ranks received different requests.
_STRONGEST_FIRST = ("cancel", "pause", "requeue")


class StopCoordinator:
    """One rank's part. A pause without a checkpoint would lose steps, so a pause that cannot be saved is abandoned."""

    def __init__(self, session: Session, agreement: Agreement | None) -> None:
        self.reason: str | None = None
        self._session = session
        self._agreement = agreement
        self._leads = session.identity.rank == 0
        self._number = agreement.abandoned_stops() if agreement else 0
        self._repeats = 0
        self._unsaved: Exception | None = None

    def due(self) -> bool:
        """Ask once; the same call returns the same answer on all ranks."""
        if self.reason is not None:
            if self._holds():
                return True
            self._go_on()
            return False
        if not self._is_requested():
            return False
        self.reason = self._why()
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
            self._session.pause_failed(self._number, f"{type(error).__name__}: {error}")

    def check(self) -> None:
        """Raise CheckpointNotSaved when the script ends as if it had saved, without asking again."""
        if self._leads and self._unsaved is not None:
            message = f"the script ended for a pause whose checkpoint could not be saved: {self._unsaved}"
            raise CheckpointNotSaved(message, error_type(self._unsaved, otherwise="STORAGE_ERROR"))

    def _may_go_on(self) -> bool:
        stop = self._session.commands.stop
        return self.reason == "pause" and (stop is None or (stop.kind == "pause" and not stop.force))

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
        question = f"{self._number}-{self._repeats}"
        if not self._leads:
            return self._agreement.answered(question) != "no"
        if not holds:
            self._agreement.abandon_stop(self._number)
        self._agreement.answer(question, "yes" if holds else "no")
        return holds

    def _go_on(self) -> None:
        given_up = Stop("pause", save_checkpoint=True, number=self._number)
        self.reason, self._unsaved = None, None
        self._number, self._repeats = self._number + 1, 0
        self._session.commands.forget(given_up)

    def _why(self) -> str:
        """The stop's kind, equal on all ranks; a rank that was cancelled meanwhile does not wait for the others."""
        stop = self._session.commands.stop
        heard = {stop.kind} if stop is not None else set()
        if self._agreement and "cancel" not in heard:
            heard = self._agreement.reasons("stop", self._number)
        # No request is left: the pause was abandoned just now.
        return next((kind for kind in _STRONGEST_FIRST if kind in heard), "pause")
