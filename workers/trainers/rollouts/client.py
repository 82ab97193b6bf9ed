"""Asks one rollout: connects as often as it is restarted, and sends the weights that it lacks."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from workers.trainers.failures import TrainingFailure
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts import handshake, requests
from workers.trainers.rollouts.completer import SamplingOptions
from workers.trainers.rollouts.places import InstanceAddress
from workers.trainers.rollouts.waiting import WaitingSection
from workers.trainers.rollouts.weights import Weights
from workers.trainers.rollouts.wire import Wire, WireClosed

AWAY_SECONDS = 600.0  # without a connection: the restart of a rollout on a busy node takes a minute
LOAD_SECONDS = 1800.0  # for its model, as the watchdog gives a training for its own
MOST_LOST = 20  # connections of one request
_CONNECT_SECONDS = 10.0
_Answer = TypeVar("_Answer")
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between attempts; the last one is repeated


class RolloutUnreachable(TrainingFailure):
    """A rollout can't be reached; another attempt of the job may find it."""

    error_type = "NETWORK_ERROR"


class RolloutFailed(TrainingFailure):
    """A rollout has answered that it can't."""

    def __init__(self, message: str, error_type: str) -> None:
        super().__init__(message)
        self.error_type = error_type


@dataclass
class WeightHandover:
    """What handing over weights took, of all requests so far."""

    seconds: float = 0.0
    bytes: int = 0


class RolloutClient:
    """One rank of one instance. ``is_leader``: it sends new weights unasked, others only what a rollout lacks."""

    def __init__(
        self,
        place: InstanceAddress,
        local_rank: int,
        secret: bytes,
        *,
        is_leader: bool,
        away_seconds: float = AWAY_SECONDS,
        waiting: WaitingSection | None = None,
    ) -> None:
        self.place = place
        self.handed = WeightHandover()
        self._local_rank = local_rank
        self._secret = secret
        self._is_leader = is_leader
        self._away_seconds = away_seconds
        self._waiting = waiting or WaitingSection()
        self._waits = ExitStack()  # the section of this client, if it waits
        self._is_waiting = False
        self._abandoned = threading.Event()
        self._wire: Wire | None = None
        self._opening: Wire | None = None  # whose handshake is not over
        self._sent: str | None = None  # the version that was sent over this connection

    def ranks(self) -> int:
        """How many ranks the instance has, once all of them listen. Raises RolloutUnreachable."""
        return self._persisting(lambda: len(self._ports_of_all()))

    def complete(self, prompts: Sequence[Prompt], options: SamplingOptions, weights: Weights) -> list[list[int]]:
        """Raises RolloutUnreachable and RolloutFailed. No prompts: only the weights are handed over."""
        return self._persisting(lambda: self._complete(prompts, options, weights))

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None
        self._sent = None

    def abandon(self) -> None:
        """End what another thread asks, which raises RolloutUnreachable, and all that is asked later."""
        self._abandoned.set()
        for wire in (self._opening, self._wire):
            if wire is not None:
                wire.interrupt()

    def _persisting(self, ask: Callable[[], _Answer]) -> _Answer:
        with self._waits:
            return self._again_and_again(ask)

    def _again_and_again(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask again after a lost connection, which changes no answer."""
        since, attempt, lost = time.monotonic(), 0, 0
        while True:
            try:
                return ask()
            except OSError as error:
                connected = self._wire is not None
                self.close()
                if connected:  # it was there: the time begins anew
                    since, attempt, lost = time.monotonic(), 0, lost + 1
                away = time.monotonic() - since
                if lost >= MOST_LOST:
                    raise RolloutUnreachable(
                        f"rollout {self.place} has ended {lost} connections, the last: {error}"
                    ) from error
                if away > self._away_seconds or self._abandoned.is_set():
                    raise RolloutUnreachable(self._explain(error, away)) from error
                self._wait_begins(anew=connected)
            self._abandoned.wait(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1

    def _wait_begins(self, *, anew: bool = False) -> None:
        """Until all that was asked is answered."""
        if anew:
            self._waits.close()
        if not self._is_waiting:
            self._is_waiting = True
            self._waits.callback(setattr, self, "_is_waiting", False)
            seconds = self._away_seconds + LOAD_SECONDS
            self._waits.enter_context(self._waiting.announced(f"waiting for rollout {self.place}", seconds))

    def _explain(self, error: OSError, seconds: float) -> str:
        return (
            f"rollout {self.place}, rank {self._local_rank} of the instance, could not be reached for {seconds:.0f} s "
            f"({error}): the log of its role says why; with restart task it is started again alone"
        )

    def _complete(self, prompts: Sequence[Prompt], options: SamplingOptions, weights: Weights) -> list[list[int]]:
        wire = self._connected()
        if self._is_leader and self._sent != weights.version:
            self._hand_over(wire, weights)
        if not prompts:
            return []
        while True:
            requests.ask_for_completions(wire, weights.version, prompts, options)
            answer, size = self._received(wire)
            if answer["kind"] == requests.COMPLETIONS:
                return requests.completions_of(answer, wire, size)
            if answer["kind"] != requests.NEEDS:
                raise WireClosed(f"an answer of the unknown kind {answer['kind']!r:.80}")
            self._hand_over(wire, weights)

    def _hand_over(self, wire: Wire, weights: Weights) -> None:
        wire.send({"kind": requests.WEIGHTS, "version": weights.version})
        answer, _ = self._received(wire)
        if answer["kind"] == requests.SEND:
            begun = time.monotonic()
            weights.describe(wire, str(answer["dtype"]))
            self._received(wire)
            self.handed.bytes += weights.send(wire, str(answer["dtype"]))
            self._received(wire)
            self.handed.seconds += time.monotonic() - begun
        self._sent = weights.version

    def _received(self, wire: Wire) -> tuple[dict[str, Any], int]:
        answer, size = wire.receive()
        if answer.get("kind") == requests.FAILED:
            message = f"rollout {self.place}: {answer.get('message')}"
            raise RolloutFailed(message, str(answer.get("error_type", RolloutFailed.error_type)))
        if "kind" not in answer:
            raise WireClosed("an answer that says not what it is")
        return answer, size

    def _connected(self) -> Wire:
        if self._wire is None:
            port = self.place.port if self._local_rank == 0 else self._ports_of_all()[self._local_rank]
            self._wire, welcome = self._connect(port)
            self._check_not_abandoned()
            if not welcome.get("loaded"):
                # Nothing is sent before: what the other side does not read is given up after a time, by the kernel.
                self._wait_begins()
                answer, _ = self._received(self._wire)
                if answer["kind"] != handshake.READY:
                    raise WireClosed(f"an answer of the kind {answer['kind']!r:.80} before the model is loaded")
        return self._wire

    def _ports_of_all(self) -> list[int]:
        wire, welcome = self._connect(self.place.port)
        wire.close()
        ports = welcome.get("ports")
        if not isinstance(ports, list):
            raise ConnectionRefusedError("not all ranks of the instance listen already")
        return [int(each) for each in ports]

    def _connect(self, port: int) -> tuple[Wire, dict[str, Any]]:
        self._check_not_abandoned()  # nothing interrupts the next line
        wire = self._opening = Wire(socket.create_connection((self.place.address, port), timeout=_CONNECT_SECONDS))
        try:
            self._check_not_abandoned()
            return wire, handshake.as_trainer(wire, self._secret)
        except BaseException:
            wire.close()
            raise
        finally:
            self._opening = None

    def _check_not_abandoned(self) -> None:
        """After each change of what `abandon` interrupts."""
        if self._abandoned.is_set():
            raise WireClosed("the training does not wait any more")
