"""A running job that commands reach: the API over HTTP, a gateway, a relay and a session server; no supervisor."""

import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from functools import partial
from pathlib import Path
from typing import Any

from app.database.engine import Database
from tests.systems.apps import Api
from tests.systems.gateways import ROOT
from tests.systems.running_up import trainyard
from tests.systems.served import serving
from tests.systems.session_sites import ServedSandbox, SessionSite

SECONDS = 20.0


class Commands:
    """``environment``: of a user with an administrator's key."""

    def __init__(self, home: Path, url: str, key: str) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "TERM": "xterm",
            "TRAINYARD_URL": url,
            "TRAINYARD_API_KEY": key,
        }

    def run(self, *arguments: str, data: bytes = b"", **options: Any) -> "subprocess.CompletedProcess[bytes]":
        """A command of `trainyard`, to its end."""
        return subprocess.run(
            trainyard(*arguments),
            env=self.environment,
            input=data,
            capture_output=True,
            check=False,
            timeout=SECONDS,
            **options,
        )

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        # A shell lets what it starts in the background ignore SIGINT, and with it all of a test run.
        listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        options = {"preexec_fn": listening, **options}
        return subprocess.Popen(trainyard(*arguments), env=self.environment, **options)

    def in_terminal(self, *arguments: str, rows: int = 24, columns: int = 80) -> "InTerminal":
        return InTerminal(self, arguments, rows=rows, columns=columns)


class ReachableJob(Commands):
    def __init__(self, site: SessionSite, sandbox: ServedSandbox, url: str, key: str) -> None:
        super().__init__(site.folder, url, key)
        self.site, self.sandbox = site, sandbox
        self.id = sandbox.job_id


class InTerminal:
    """A command of `trainyard` in a terminal of this test's."""

    def __init__(self, commands: Commands, arguments: tuple[str, ...], *, rows: int, columns: int) -> None:
        self._ours, self._terminal = pty.openpty()
        self.resize(rows, columns)
        self.mode_before = termios.tcgetattr(self._terminal)
        self.heard = b""
        self.process = commands.start(
            *arguments,
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            start_new_session=True,
            # Its terminal, so that the kernel tells it of sizes.
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )

    @property
    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._terminal)

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data: bytes) -> None:
        os.write(self._ours, data)

    def until(self, text: bytes) -> bytes:
        """What was shown, up to this text and since the last time."""
        self._read_until(lambda: text in self.heard, repr(text))
        before, _, self.heard = self.heard.partition(text)
        return before + text

    def ended(self) -> int:
        """The exit code, once it has ended; what it has shown until then is in ``heard``."""
        self._read_until(lambda: self.process.poll() is not None, "its end")
        while select.select([self._ours], [], [], 0.05)[0]:
            self.heard += os.read(self._ours, 65536)
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)
        os.close(self._terminal)

    def _read_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come after {self.heard!r}"
            if select.select([self._ours], [], [], 0.05)[0]:
                self.heard += os.read(self._ours, 65536)


@contextmanager
def reachable_job(database: Database, folder: Path, **columns: Any) -> Iterator[ReachableJob]:
    site = SessionSite(database, folder)
    try:
        site.serve()
        (folder / "api").mkdir()
        api = Api(database, folder / "api", TRAINYARD_GATEWAY_SESSIONS_URL=f"http://127.0.0.1:{site.port}")
        with serving(api) as served:
            yield ReachableJob(site, site.sandbox(**columns), served.url, api.key)
        api.close()
    finally:
        site.close()
