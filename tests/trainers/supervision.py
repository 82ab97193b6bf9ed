"""A supervisor reduced to its end of the channel: starts real ranks, hears them, answers, commands."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.trainers.forked import Process, rank_environment, start_rank
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.channel import LineDecoder, Message, encode, short_address

ROOT = Path(__file__).parents[2]
TRAINER = [sys.executable, "-m", "workers.trainers.main", "--spec"]


@dataclass
class Ended:
    """What a run said, and what its ranks left."""

    messages: list[Message]
    exit_codes: list[int]
    logs: list[str]
    checkpoints: list[Path]

    def of_type(self, type_: str) -> list[Message]:
        return [message for message in self.messages if message["type"] == type_]

    @property
    def result(self) -> Message:
        (result,) = self.of_type("result")
        return result

    @property
    def phases(self) -> list[str]:
        return [message["phase"] for message in self.of_type("phase")]

    def series(self, name: str) -> dict[int, float]:
        """One metric by step."""
        points = ((message["step"], message["values"]) for message in self.of_type("metric"))
        return {step: values[name] for step, values in points if name in values}


@dataclass
class FakeSupervisor:
    """One attempt. `when` maps messages to commands: each is sent once, at the first match.

    Until a message matches `stores_from` no checkpoint is stored, and the trainer waits before it offers another one.
    """

    run_dir: Path
    storage: Path
    when: list[tuple[Callable[[Message], bool], Message]] = field(default_factory=list)
    checkpoint_failure: str | None = None
    stores_from: Callable[[Message], bool] | None = None

    def __post_init__(self) -> None:
        for directory in (self.run_dir / "work", self.storage):
            directory.mkdir(parents=True, exist_ok=True)
        self.messages: list[Message] = []
        self._unstored: list[Message] = []
        self._clients: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_address(self.run_dir / "channel") as address:
            self._listener.bind(address)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, name="fake-supervisor-accept")]
        self._threads[0].start()

    def run(self, command: list[str], spec: Mapping[str, Any], *, timeout_seconds: float = 180) -> Ended:
        """Start the ranks, wait for them, hang up."""
        path = self.run_dir / "spec.json"
        path.write_text(json.dumps(spec))
        arguments = [*command, str(path)] if command == TRAINER else command
        logs = [self.run_dir / f"rank-{rank}.log" for rank in range(spec["world_size"])]
        processes = [self._start(arguments, spec, rank, logs[rank]) for rank in range(spec["world_size"])]
        try:
            exit_codes = wait_for_all(processes, timeout_seconds)
        finally:
            self.close()
        texts = [log.read_text() for log in logs]
        return Ended(self.messages, exit_codes, texts, sorted(self.storage.iterdir()))

    def send(self, *messages: Message) -> None:
        """To every rank that is still connected; several at once, so that nothing happens between them."""
        with self._lock:
            for client in self._clients:
                with contextlib.suppress(OSError):
                    client.sendall(b"".join(map(encode, messages)))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=5)
        for client in self._clients:
            client.close()

    def _start(self, arguments: list[str], spec: Mapping[str, Any], rank: int, log: Path) -> Process:
        environment = rank_environment(
            rank,
            spec["world_size"],
            spec.get("master_port", 0),
            OMP_NUM_THREADS=str(spec["threads_per_rank"]),
            TRAINYARD_CHANNEL=str(self.run_dir / "channel"),
            TRAINYARD_SPEC=str(self.run_dir / "spec.json"),
        )
        work = self.run_dir / "work"
        if arguments[: len(TRAINER)] == TRAINER:
            return start_rank(arguments[2:], [spec], environment=environment, cwd=work, log=log)
        with log.open("wb") as output:
            return subprocess.Popen(arguments, env=environment, cwd=work, stdout=output, stderr=subprocess.STDOUT)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._clients.append(client)
            thread = threading.Thread(target=self._listen, args=(client,), name="fake-supervisor-client")
            self._threads.append(thread)
            thread.start()

    def _listen(self, client: socket.socket) -> None:
        decoder = LineDecoder()
        while data := _received(client):
            for message in decoder.feed(data):
                self._handle(message)

    def _handle(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "checkpoint":
            self._unstored.append(message)
        if self.stores_from is None:
            self._store_all()
        due = [rule for rule in self.when if rule[0](message)]
        for rule in due:
            self.when.remove(rule)
        if due:
            self.send(*(command for _, command in due))
        if self.stores_from is not None and self.stores_from(message):
            self.stores_from = None
            self._store_all()

    def _store_all(self) -> None:
        waiting, self._unstored = self._unstored, []
        for message in waiting:
            self._store(message)

    def _store(self, message: Message) -> None:
        if self.checkpoint_failure:
            self.send({"type": "checkpoint_failed", "path": message["path"], "message": self.checkpoint_failure})
            return
        checkpoint_manifest.verify(message["path"])
        shutil.move(message["path"], self.storage)
        self.send({"type": "checkpoint_saved", "path": message["path"], "checkpoint_id": "ckpt-1"})


def at_step(step: int) -> Callable[[Message], bool]:
    """Matches the metrics of one step."""
    return lambda message: message["type"] == "metric" and message["step"] >= step


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(65536)
    except OSError:
        return b""


def wait_for_all(processes: Sequence[Process], timeout_seconds: float) -> list[int]:
    """Wait for every rank; when one fails, the others have three seconds to notice."""
    deadline = time.monotonic() + timeout_seconds
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            deadline = min(deadline, time.monotonic() + 3)
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(0.02)
    return [process.wait() for process in processes]
