"""The rank that completes prompts: it listens from its start, and answers once its model is loaded."""

import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from workers.trainers.rollouts import handshake
from workers.trainers.rollouts.places import InstanceAddress, port_file
from workers.trainers.rollouts.wire import Wire

if TYPE_CHECKING:
    from workers.trainers.rollouts.request_handler import RequestHandler

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5  # for what this process lacks, such as file descriptors
_STRANGERS = 64  # connections at once that have not proven themselves


class RolloutServer:
    """``ranks``: of this instance, all on this node; the first one listens at ``place`` and says the others' ports."""

    def __init__(self, place: InstanceAddress, local_rank: int, ranks: int, secret: bytes, directory: Path) -> None:
        self._place = place
        self._local_rank = local_rank
        self._ranks = ranks
        self._secret = secret
        self._directory = directory
        self._strangers = threading.BoundedSemaphore(_STRANGERS)
        self._loaded = threading.Event()
        self._handler: RequestHandler | None = None
        self._closed = False
        self._listener = self._listening()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Accept connections on threads; requests wait for `ready`."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def ready(self, handler: "RequestHandler") -> None:
        self._handler = handler
        self._loaded.set()

    def close(self) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`, which `close` does not
        self._listener.close()

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._place.address else socket.AF_INET
        port = self._place.port if self._local_rank == 0 else 0
        listener = socket.create_server((self._place.address, port), family=family, backlog=128)
        if self._local_rank:
            file = port_file(self._directory, self._place, self._local_rank)
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".partial")
            partial.write_text(str(listener.getsockname()[1]), encoding="utf-8")
            partial.replace(file)
        return listener

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                _LOG.warning("a connection was not accepted: %s", error)
                time.sleep(_PAUSE_SECONDS)
                continue
            if not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError as error:  # no more threads
                self._strangers.release()
                connection.close()
                _LOG.warning("a connection was not accepted: %s", error)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            proven = self._proven(connection)
            if proven is not None:
                self._answer_all(*proven)

    def _answer_all(self, wire: Wire, is_loaded: bool) -> None:  # noqa: FBT001
        try:
            self._loaded.wait()
            if self._handler is None:
                raise RuntimeError("a rollout is ready without a model")
            if not is_loaded:
                wire.send({"kind": handshake.READY})
            while True:
                self._handler.answer(wire)
        except OSError as error:
            _LOG.info("a connection of this rollout has ended: %s", error)
        except Exception:  # noqa: BLE001  the outermost loop of this thread; without its model the rank is of no use
            traceback.print_exc()
            os._exit(1)

    def _proven(self, connection: socket.socket) -> tuple[Wire, bool] | None:
        """With whether its welcome has the model as loaded. None: the other side has not proven itself; whatever it
        sends, only its connection ends by it.
        """
        is_loaded = self._loaded.is_set()
        try:
            wire = Wire(connection)
            handshake.as_rollout(wire, self._secret)
            wire.send({"loaded": is_loaded, "ports": self._ports()})
            wire.limit(None)
        except Exception as error:  # noqa: BLE001  a stranger must not end a rollout
            _LOG.info("a connection to this rollout was refused: %s", error)
            return None
        finally:
            self._strangers.release()
        return wire, is_loaded

    def _ports(self) -> list[int] | None:
        """Where the ranks listen; None: not all of them do already."""
        if self._local_rank:
            return None
        try:
            others = [
                int(port_file(self._directory, self._place, each).read_text(encoding="utf-8"))
                for each in range(1, self._ranks)
            ]
        except (OSError, ValueError):
            return None
        return [self.port, *others]


def serve(make_server: Callable[[], RolloutServer], load: Callable[[], "RequestHandler"]) -> None:
    """Listen, load the model, and answer until the process is ended."""
    server = make_server()
    server.start()
    server.ready(load())
    threading.Event().wait()
