"""What the supervisor wants of a run, as a rank has heard it so far."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STOPS = ("pause", "cancel", "requeue")


@dataclass(frozen=True)
class Stop:
    """The wish that the run ends at the next step boundary."""

    kind: str
    save_checkpoint: bool


class CheckpointNotSaved(Exception):
    """The supervisor could not take a committed checkpoint into storage."""


class Wishes:
    """Collects commands (from the reader thread) and answers questions about them (from the run).

    A cancel overrides any other stop; of two others the first stays, because ranks may already be
    acting on it. A closed channel counts as a cancel: a run that nobody supervises must end.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watcher: Callable[[], None] = lambda: None
        self._stop: Stop | None = None
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

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` on the reader thread after each change, and once now for what came before."""
        self._watcher = watcher
        watcher()

    def receive(self, message: dict[str, Any]) -> None:
        """Take in one message; an unknown one is a newer supervisor's and ignored."""
        kind = message["type"]
        with self._changed:
            if kind in STOPS:
                self._wish(Stop(kind, kind != "cancel" and message.get("save_checkpoint", True)))
            elif kind == "checkpoint":
                self._checkpoint_requests += 1
            elif kind == "checkpoint_saved":
                self._answers[message["path"]] = None
            elif kind == "checkpoint_failed":
                self._answers[message["path"]] = message.get("message") or "no reason given"
            self._changed.notify_all()
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
        if self._stop is None or stop.kind == "cancel":
            self._stop = stop

    def _cancelled(self) -> bool:
        return self._orphaned or (self._stop is not None and self._stop.kind == "cancel")
