"""What the supervisor wants of a run, as a rank has heard it so far."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STOPS = ("pause", "cancel", "requeue")


@dataclass(frozen=True)
class Stop:
    """The wish that the run ends at the next step boundary; `number` tells a later one from one that was given up."""

    kind: str
    save_checkpoint: bool
    force: bool = False  # end also when the checkpoint can't be saved
    number: int = 0


class CheckpointNotSaved(Exception):
    """A checkpoint did not get into storage; ``error_type`` is how the platform calls the reason."""

    def __init__(self, message: str, error_type: str = "STORAGE_ERROR") -> None:
        super().__init__(message)
        self.error_type = error_type


class Wishes:
    """Collects commands (from the reader thread) and answers questions about them (from the run).

    A cancel overrides any other stop; of two others the first stays, because ranks may already be
    acting on it. A closed channel counts as a cancel: a run that nobody supervises must end.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watcher: Callable[[], None] = lambda: None
        self._stop: Stop | None = None
        self._next: Stop | None = None
        self._given_up = -1  # the number of the last stop that was; the first one is 0
        self._checkpoint_requests = 0
        self._answers: dict[str, str | None] = {}
        self._orphaned = False

    @property
    def stop(self) -> Stop | None:
        return self._stop

    @property
    def checkpoint_requests(self) -> int:
        """How often "save now and go on" was asked for since the start."""
        return self._checkpoint_requests

    @property
    def given_up(self) -> int:
        """The number of the last pause that was given up, -1 when none was."""
        return self._given_up

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` on the reader thread after each change, and once now for what came before."""
        self._watcher = watcher
        watcher()

    def receive(self, message: dict[str, Any]) -> None:
        """Take in one message; an unknown one is a newer supervisor's and ignored."""
        kind = message["type"]
        with self._changed:
            if kind in STOPS:
                saves = kind != "cancel" and message.get("save_checkpoint", True)
                force, number = saves and message.get("force", False), message.get("number", 0)
                self._wish(Stop(kind, saves, force=force, number=number))
            elif kind == "forget":
                self._give_up(message.get("number", 0))
            elif kind == "checkpoint":
                self._checkpoint_requests += 1
            elif kind == "checkpoint_saved":
                self._answers[message["path"]] = None
            elif kind == "checkpoint_failed":
                self._answers[message["path"]] = message.get("message") or "no reason given"
            self._changed.notify_all()
        self._watcher()

    def forget(self, stop: Stop) -> None:
        """This wish was not followed and holds no more; a stronger or a later one that came since does."""
        with self._changed:
            self._give_up(stop.number)
        self._watcher()

    def orphan(self) -> None:
        """The supervisor is gone."""
        with self._changed:
            self._orphaned = True
            self._wish(Stop("cancel", save_checkpoint=False))
            self._changed.notify_all()
        self._watcher()

    def wait_saved(self, path: str) -> bool:
        """Wait for the supervisor's answer on one committed checkpoint.

        True when it is in storage, False when a cancel made it pointless to wait. There is no time
        limit: storage may be slow, and a supervisor that dies ends the wait by closing the channel.
        Raises CheckpointNotSaved.
        """
        with self._changed:
            self._changed.wait_for(lambda: path in self._answers or self._cancelled())
            if path not in self._answers:
                return False
            if (problem := self._answers[path]) is not None:
                raise CheckpointNotSaved(problem)
            return True

    def _wish(self, stop: Stop) -> None:
        if stop.kind != "cancel" and stop.number <= self._given_up:
            return  # the other ranks had heard of it before this one
        if self._stop is None or stop.kind == "cancel" or self._is(stop, self._stop):
            self._stop = stop
        elif stop.number > self._stop.number:
            self._next = stop  # this rank is about to hear that the first one was given up

    def _give_up(self, number: int) -> None:
        """Only pauses are: everything else must be followed."""
        self._given_up = max(self._given_up, number)
        if self._stop is not None and self._stop.kind == "pause" and self._stop.number <= number:
            self._stop, self._next = self._next, None

    @staticmethod
    def _is(one: Stop, other: Stop) -> bool:
        """Whether they are the same wish, which may have become more urgent meanwhile."""
        return (one.kind, one.number) == (other.kind, other.number)

    def _cancelled(self) -> bool:
        return self._orphaned or (self._stop is not None and self._stop.kind == "cancel")
