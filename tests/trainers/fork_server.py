"""Imports what trainers need, then forks a process for each rank: `python -m tests.trainers.fork_server FD MISSING…`.

FD is a Unix socket that listens for packets. Each connection stands for one process, or for a client that may start
some: when the last connection is closed, this ends. A process whose connection is closed is killed.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from app.domain.spec.frameworks.deepspeed import DEEPSPEED

LARGEST_PACKET = 200_000
# Of pyarrow's memory allocator, which starts it anew in a child. No other thread would survive a fork.
_THREADS_THAT_SURVIVE = {"jemalloc_bg_thd"}
# Their imports take a second that few trainings need: the first of these has them imported.
_IMPORTED_LATE = ("workers.trainers.megatron.",)
# Needs what most servers hide.
_QUANTIZING = "workers.trainers.hf_trainer.methods.qlora"


class ForkServer:
    """Starts processes that have all imports behind them; `environment` is what was set before these."""

    def __init__(self, listener: socket.socket, environment: dict[str, str]) -> None:
        self._listener = listener
        self._environment = environment
        self._selector = selectors.DefaultSelector()
        self._processes: dict[socket.socket, int] = {}  # 0 before there is one, and after its end

    def serve(self, hello: bytes) -> None:
        """Serve until the last client has disconnected; the first connects before this process starts."""
        self._selector.register(self._listener, selectors.EVENT_READ, partial(self._accept, hello))
        while True:
            for key, _ in self._selector.select():
                key.data()
            if not self._processes:
                return

    def _accept(self, hello: bytes) -> None:
        client, _ = self._listener.accept()
        self._processes[client] = 0
        self._selector.register(client, selectors.EVENT_READ, partial(self._read, client))
        _tell(client, hello)

    def _read(self, client: socket.socket) -> None:
        try:
            packet, files, _, _ = socket.recv_fds(client, LARGEST_PACKET, 1)
        except OSError:
            packet = b""
        if packet:
            self._fork(client, json.loads(packet), files[0])
            return
        self._selector.unregister(client)
        client.close()
        if pid := self._processes.pop(client):
            os.kill(pid, signal.SIGKILL)

    def _fork(self, client: socket.socket, request: dict[str, Any], output: int) -> None:
        _import(request["imports"])
        changed = {name: value for name, value in os.environ.items() if self._environment.get(name) != value}
        pid = os.fork()
        if pid == 0:
            self._close()
            _become(request, changed, output)
        os.close(output)
        self._processes[client] = pid
        end = os.pidfd_open(pid)
        self._selector.register(end, selectors.EVENT_READ, partial(self._ended, client, pid, end))
        _tell(client, str(pid).encode())

    def _ended(self, client: socket.socket, pid: int, end: int) -> None:
        self._selector.unregister(end)
        os.close(end)
        _, status = os.waitpid(pid, 0)
        if client in self._processes:
            self._processes[client] = 0
            _tell(client, str(os.waitstatus_to_exitcode(status)).encode())

    def _close(self) -> None:
        """In a child, which shares what its parent selects from: to unregister here were to unregister there."""
        for key in self._selector.get_map().values():
            os.close(key.fileobj.detach() if isinstance(key.fileobj, socket.socket) else key.fd)
        self._selector.close()


def main() -> None:
    if os.fork():
        os._exit(
            0
        )  # the process of pytest that started this may end before its other clients, and does not wait for it
    environment = dict(os.environ)
    for name in sys.argv[2:]:
        sys.modules[name] = None  # type: ignore[assignment]  # as in workers.trainers.main
    _import(_needed_by_trainers())
    server = ForkServer(socket.socket(fileno=int(sys.argv[1])), environment)
    server.serve(json.dumps({"pid": os.getpid(), "environment": environment}).encode())
    os._exit(0)  # there is nothing to tidy up


def _needed_by_trainers() -> list[str]:
    """All modules but those that are imported late, or need what this process hides."""
    from workers.trainers import registry  # noqa: PLC0415  only now, without what is hidden

    unneeded = _IMPORTED_LATE if "bitsandbytes" not in sys.modules else (*_IMPORTED_LATE, _QUANTIZING)
    places = [place.partition(":")[0] for place in registry.TRAINERS.values()]
    libraries = [DEEPSPEED.lower()] if DEEPSPEED.lower() not in sys.modules else []
    shared = [f"workers.trainers.{name}" for name in ("failures", "distributed")]
    return [*libraries, *(module for module in places if not module.startswith(unneeded)), *shared]


def _import(modules: Iterable[str]) -> None:
    """Import what is not yet imported, for all children."""
    if all(module in sys.modules for module in modules):
        return
    for module in modules:
        importlib.import_module(module)
    if threads := {path.read_text().strip() for path in _other_threads()} - _THREADS_THAT_SURVIVE:
        sys.exit(f"imports have started threads, which no child would have: {threads}")
    gc.collect()
    gc.freeze()  # what a child never touches, it never copies


def _other_threads() -> list[Path]:
    return [path / "comm" for path in Path("/proc/self/task").iterdir() if path.name != str(os.getpid())]


def _become(request: dict[str, Any], set_by_imports: dict[str, str], output: int) -> NoReturn:
    """What `python -m MODULE ARGUMENTS` would be."""
    import numpy as np  # noqa: PLC0415

    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"] | set_by_imports)
    os.chdir(request["directory"])
    np.random.seed()  # noqa: NPY002  as unforeseeable as in any new process; Python's own generator does it by itself
    sys.argv[1:] = request["arguments"]
    code = 1
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
    except BaseException:  # noqa: BLE001  as any uncaught exception
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell(client: socket.socket, packet: bytes) -> None:
    with suppress(OSError):  # it is gone, which the next read tells
        client.send(packet)


if __name__ == "__main__":
    main()
