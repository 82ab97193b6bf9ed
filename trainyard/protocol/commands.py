"""Commands from the supervisor to its ranks: types, encoding, parsing, and what a rank has received so far."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from trainyard.protocol.messages import fields_of

# DRAIN: a replica takes no more requests, answers those that it has, and has then run to its end.
DRAIN = "drain"
STOPS = ("pause", "cancel", "requeue", DRAIN)


@dataclass(frozen=True)
class Stop:
    """End at the next step boundary; `number` tells a later stop from one that was given up."""

    kind: str  # one of STOPS, and the type of its message; HALT, which ranks know by themselves, has none
    save_checkpoint: bool
    force: bool = False  # end also when the checkpoint can't be saved
    number: int = 0


@dataclass(frozen=True)
class ForgetStop:
    """The pause of this number is given up: continue."""

    type: ClassVar[str] = "forget"
    number: int = 0


@dataclass(frozen=True)
class SaveCheckpoint:
    """Save at the next step boundary and continue."""

    type: ClassVar[str] = "checkpoint"


@dataclass(frozen=True)
class CheckpointSaved:
    type: ClassVar[str] = "checkpoint_saved"
    path: str
    checkpoint_id: str = ""


@dataclass(frozen=True)
class CheckpointFailed:
    type: ClassVar[str] = "checkpoint_failed"
    path: str
    message: str = "no reason given"


@dataclass(frozen=True)
class WriteStacks:
    """Write the stacks of all threads into the run directory."""

    type: ClassVar[str] = "stacks"


@dataclass(frozen=True)
class AdapterReady:
    """The adapter of this name lies in ``path``, where the rank can read it."""

    type: ClassVar[str] = "adapter_ready"
    name: str
    path: str


@dataclass(frozen=True)
class AdapterRefused:
    type: ClassVar[str] = "adapter_refused"
    name: str
    message: str = "no reason given"


@dataclass(frozen=True, kw_only=True)
class ModelAnswered:
    """To an AskModel of this number: what the gateway answered, or why it could not be asked, in the same form."""

    type: ClassVar[str] = "model_answered"
    number: int = 0
    status: int = 0
    body: str = ""  # JSON


Answer = CheckpointSaved | CheckpointFailed  # to a CheckpointReady
AdapterAnswer = AdapterReady | AdapterRefused  # to a FetchAdapter
Command = (
    Stop
    | ForgetStop
    | SaveCheckpoint
    | CheckpointSaved
    | CheckpointFailed
    | WriteStacks
    | AdapterAnswer
    | ModelAnswered
)


_BY_TYPE = {
    each.type: each
    for each in (
        *(ForgetStop, SaveCheckpoint, CheckpointSaved, CheckpointFailed, WriteStacks),
        *(AdapterReady, AdapterRefused, ModelAnswered),
    )
}


def to_message(command: Command) -> dict[str, Any]:
    """The command as it is sent."""
    if isinstance(command, Stop):
        save, force, number = command.save_checkpoint, command.force, command.number
        return {"type": command.kind, "save_checkpoint": save, "force": force, "number": number}
    return {"type": command.type, **fields_of(command)}


def parse(message: dict[str, Any]) -> Command | None:
    """The command of a supervisor's message; None for one that only a newer supervisor knows."""
    kind = message["type"]
    if kind in STOPS:
        saves = kind != "cancel" and message.get("save_checkpoint", True)
        force = saves and message.get("force", False)
        return Stop(kind, saves, force=force, number=message.get("number", 0))
    command = _BY_TYPE.get(kind)
    if command is None:
        return None
    return command(**{each.name: message[each.name] for each in fields(command) if message.get(each.name)})


class CheckpointNotSaved(Exception):
    """A checkpoint was not stored; ``error_type`` is the platform's name of the reason."""

    def __init__(self, message: str, error_type: str = "STORAGE_ERROR") -> None:
        super().__init__(message)
        self.error_type = error_type


class AdapterNotLoaded(Exception):
    """The platform has no adapter under this name for the replica; the message says why."""


class ReceivedCommands:
    """Collects commands (from the reader thread) and answers questions about them (from the run).

    A cancel overrides any other stop; of two others the first stays, because ranks may already be
    acting on it. A closed channel counts as a cancel: a run without a supervisor must end.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watcher: Callable[[], None] = lambda: None
        self._stop: Stop | None = None
        self._next: Stop | None = None
        self._given_up = -1  # the number of the last stop that was given up; the first stop is 0
        self._checkpoint_requests = 0
        self._answers: dict[str, str | None] = {}
        self._adapters: dict[str, AdapterAnswer] = {}
        self._models: dict[int, ModelAnswered | None] = {}  # None: asked, and not answered yet
        self._orphaned = False

    @property
    def stop(self) -> Stop | None:
        return self._stop

    @property
    def checkpoint_requests(self) -> int:
        """How often "save now and continue" was requested since the start."""
        return self._checkpoint_requests

    @property
    def given_up(self) -> int:
        """The number of the last pause that was given up, -1 when none was."""
        return self._given_up

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` on the reader thread after each change, and once now for what came before."""
        self._watcher = watcher
        watcher()

    def apply(self, command: Command | None) -> None:
        """Take in one command; None, as of `parse`, is ignored."""
        with self._changed:
            if isinstance(command, Stop):
                self._request(command)
            elif isinstance(command, ForgetStop):
                self._give_up(command.number)
            elif isinstance(command, SaveCheckpoint):
                self._checkpoint_requests += 1
            elif isinstance(command, CheckpointSaved):
                self._answers[command.path] = None
            elif isinstance(command, CheckpointFailed):
                self._answers[command.path] = command.message
            elif isinstance(command, AdapterReady | AdapterRefused):
                self._adapters[command.name] = command
            elif isinstance(command, ModelAnswered) and command.number in self._models:
                self._models[command.number] = command
            self._changed.notify_all()
        self._watcher()

    def forget(self, stop: Stop) -> None:
        """Drop a stop that was not followed; a stronger or a later one that has come since remains."""
        with self._changed:
            self._give_up(stop.number)
        self._watcher()

    def orphan(self) -> None:
        """The supervisor has ended: a cancel."""
        with self._changed:
            self._orphaned = True
            self._request(Stop("cancel", save_checkpoint=False))
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

    def forget_adapter(self, name: str) -> None:
        """Drop an earlier answer about this adapter, which is about to be asked for again."""
        with self._changed:
            self._adapters.pop(name, None)

    def wait_adapter(self, name: str) -> str:
        """Wait until the adapter was fetched; returns its directory. Raises AdapterNotLoaded, also after any stop."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._adapters or self._orphaned or self._stop is not None)
            answer = self._adapters.get(name)
        if isinstance(answer, AdapterReady):
            return answer.path
        raise AdapterNotLoaded("the run ends" if answer is None else answer.message)

    def expect_model(self, number: int) -> None:
        """Keep the answer of this number until `wait_model` takes it."""
        with self._changed:
            self._models[number] = None

    def wait_model(self, number: int) -> ModelAnswered | None:
        """Wait for the answer of a model that was asked; None when a cancel made it pointless to wait.

        A pause is no reason to end: ranks follow it at the next step boundary, which may need the answer.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._models[number] is not None or self._cancelled())
            return self._models.pop(number)

    def _request(self, stop: Stop) -> None:
        if stop.kind != "cancel" and stop.number <= self._given_up:
            return  # already given up: the other ranks received it before this one
        if self._stop is None or stop.kind == "cancel" or self._is(stop, self._stop):
            self._stop = stop
        elif stop.number > self._stop.number:
            self._next = stop  # the command that gives up the first one is still to come

    def _give_up(self, number: int) -> None:
        """Give up pauses only: every other stop must be followed."""
        self._given_up = max(self._given_up, number)
        if self._stop is not None and self._stop.kind == "pause" and self._stop.number <= number:
            self._stop, self._next = self._next, None

    @staticmethod
    def _is(one: Stop, other: Stop) -> bool:
        """Whether they are the same request, which may have become more urgent meanwhile."""
        return (one.kind, one.number) == (other.kind, other.number)

    def _cancelled(self) -> bool:
        return self._orphaned or (self._stop is not None and self._stop.kind == "cancel")
