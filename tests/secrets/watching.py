"""Records what a running system exposes: every process's command line and environment, every Redis command."""

import os
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

SAMPLE_SECONDS = 0.05
RANKS = (b"workers.rank.agent", b"workers.trainers", b"/code/")


@dataclass(frozen=True)
class Seen:
    """A process as it was at one moment; one that becomes another program is seen twice."""

    pid: int
    command: bytes
    environment: bytes

    @property
    def is_of_a_rank(self) -> bool:
        """Whether it runs, or encloses, code that users may have written; while it becomes that it has no command."""
        return bool(self.job_id) or any(part in self.command for part in RANKS)

    @property
    def job_id(self) -> str:
        """Empty for processes that belong to no job."""
        named = [line for line in self.environment.split(b"\0") if line.startswith(b"TRAINYARD_JOB_ID=")]
        return named[0].partition(b"=")[2].decode() if named else ""


@dataclass
class ProcessWatch:
    """Processes that mention an installation's directory, looked at many times a second."""

    directory: Path
    seen: set[Seen] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, name="process watch")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        own, mark = str(os.getpid()), str(self.directory).encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal() or folder.name == own:
                continue
            try:
                command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            except OSError:  # it has ended
                continue
            if mark in command or mark in environment:
                self.seen.add(Seen(int(folder.name), command, environment))


class RedisWatch:
    """Every command that a Redis is sent, as its MONITOR tells."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._password = parts.password or ""
        self.heard = bytearray()

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(self._address, timeout=10)
        self._socket.sendall(f"AUTH {self._password}\r\nMONITOR\r\n".encode())
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._listen, name="redis watch")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while data := self._socket.recv(1 << 16):
            self.heard += data
