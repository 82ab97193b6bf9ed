"""Processes of trainers that have their imports behind them: forked by servers that all processes of pytest share."""

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.domain.spec.frameworks.megatron import MEGATRON
from tests.guards import MARK
from tests.trainers.fork_server import LARGEST_PACKET
from trainyard.protocol.channel import short_address
from workers.trainers.hidden_packages import QLORA

# Imports read none of these. With any other difference to the server's environment a process starts cold.
_READ_LATER = {
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TRAINYARD_ROLE", "TRAINYARD_TASK_INDEX", "TRAINYARD_TASKS", "TRAINYARD_JOB_SECRET"),
    *("TRAINYARD_CHANNEL", "TRAINYARD_SPEC", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", MARK),
}
# What servers import only when a run needs it.
_IMPORTED_LATE = {MEGATRON: "workers.trainers.megatron.supervised"}
_ROOT = Path(__file__).parents[2]
# When tests are collected: what tests and their libraries change in this process later, a supervisor would not pass on.
_AT_START = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}


class ForkedProcess:
    """What `subprocess.Popen` is of a process that was started cold."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(_received(self._connection))
            self._connection.close()
        return self.returncode


Process = subprocess.Popen[bytes] | ForkedProcess


class ForkServers:
    """One for each set of modules that trainers must not find; a directory has the sockets of all of them."""

    def __init__(self, directory: Path, owned_pids: set[int]) -> None:
        self._directory = directory
        self._owned_pids = owned_pids
        self._connections: dict[tuple[str, ...], tuple[socket.socket, dict[str, str]]] = {}

    def start(
        self,
        arguments: list[str],
        missing: tuple[str, ...],
        environment: Mapping[str, str],
        cwd: Path,
        output: IO[bytes],
        imports: Sequence[str] = (),
    ) -> ForkedProcess | None:
        """The process of `python -m ARGUMENTS`; none if its imports could see another environment than the server's.

        `imports`: modules that it shall find imported.
        """
        fixed = _without_late(environment)
        if missing not in self._connections:
            self._connections[missing] = self._connect(missing, fixed)
        if self._connections[missing][1] != fixed:
            return None
        connection = _connected(self._socket(missing))
        _received(connection)
        request = {
            "module": arguments[0],
            "arguments": arguments[1:],
            "environment": dict(environment),
            "directory": str(cwd),
            "imports": list(imports),
        }
        socket.send_fds(connection, [json.dumps(request).encode()], [output.fileno()])
        return ForkedProcess(connection, int(_received(connection)))

    def close(self) -> None:
        """A server ends after the last client of it."""
        for connection, _ in self._connections.values():
            connection.close()

    def _connect(self, missing: tuple[str, ...], environment: dict[str, str]) -> tuple[socket.socket, dict[str, str]]:
        """A connection that keeps the server running, and the environment that it was started with."""
        path = self._socket(missing)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(OSError):
                return self._greeted(_connected(path))
            path.unlink(missing_ok=True)
            with _listening(path) as listener:
                connection = _connected(path)
                _start_server(path, listener, missing, environment)
            return self._greeted(connection)

    def _greeted(self, connection: socket.socket) -> tuple[socket.socket, dict[str, str]]:
        try:
            hello = json.loads(_received(connection))
        except OSError:
            connection.close()
            raise
        self._owned_pids.add(hello["pid"])
        return connection, _without_late(hello["environment"])

    def _socket(self, missing: Iterable[str]) -> Path:
        return self._directory / "-".join(["fork-server-without", *missing])


# Of this process of pytest, if its tests may use some.
_servers: ForkServers | None = None


@contextmanager
def fork_servers(directory: Path, owned_pids: set[int]) -> Iterator[None]:
    """For as long as this lasts, `start_rank` may fork."""
    global _servers  # noqa: PLW0603
    before, _servers = _servers, _servers or ForkServers(directory, owned_pids)
    try:
        yield
    finally:
        if before is None:
            _servers.close()
        _servers = before


def start_rank(
    arguments: list[str],
    specs: Iterable[Mapping[str, Any]] = (),
    *,
    environment: Mapping[str, str],
    cwd: Path,
    log: Path,
    cold: bool = False,
) -> Process:
    """One process of `python -m ARGUMENTS`, which trains by these documents of runs."""
    specs = list(specs)
    missing = _missing_for(specs)
    imports = [module for framework, module in _IMPORTED_LATE.items() if _uses(specs, framework)]
    with log.open("wb") as output:
        if _servers and missing is not None and not cold:
            forked = _servers.start(arguments, missing, environment, cwd, output, imports)
            if forked is not None:
                return forked
        command = [sys.executable, "-m", *arguments]
        return subprocess.Popen(command, env=environment, cwd=cwd, stdout=output, stderr=subprocess.STDOUT)


def rank_environment(rank: int, world_size: int, port: int, **changes: str) -> dict[str, str]:
    """What a supervisor would set for one of the ranks of this machine, and the tests themselves."""
    return {
        **_AT_START,
        MARK: os.environ[MARK],
        "PYTHONPATH": str(_ROOT),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **changes,
    }


def _missing_for(specs: list[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """The modules that `workers.trainers.main` hides for these runs, if there is a server for them."""
    if any(spec.get("device_type", "cpu") != "cpu" for spec in specs):
        return None
    quantization = () if any(spec["training_type"] == QLORA for spec in specs) else ("bitsandbytes",)
    return quantization if _uses(specs, DEEPSPEED) else (*quantization, "deepspeed")


def _uses(specs: list[Mapping[str, Any]], framework: str) -> bool:
    return any(spec["framework"] == framework for spec in specs)


def _start_server(path: Path, listener: socket.socket, missing: tuple[str, ...], environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.trainers.fork_server", str(listener.fileno()), *missing]
    with path.with_suffix(".log").open("wb") as log:
        subprocess.run(
            command,
            check=True,
            env={**environment, MARK: os.environ[MARK]},
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # an interrupt from the keyboard ends the tests first
        )


def _without_late(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _READ_LATER}


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with short_address(path) as address:
        listener.bind(address)
    listener.listen()
    return listener


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with short_address(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _received(connection: socket.socket) -> bytes:
    packet = connection.recv(LARGEST_PACKET)
    if not packet:
        raise ConnectionResetError("the fork server has ended: see its log")
    return packet
