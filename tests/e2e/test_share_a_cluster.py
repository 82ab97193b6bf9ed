"""docs/tutorials/share-a-cluster.md as a reader follows it: its commands in their order, and the output it shows."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

import psutil
import pytest

from tests.systems.running_up import wait_until
from tests.systems.servers import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
# A reader polls until the expected output is there.
POLL_SECONDS = 60.0
DONE = "----done"


class Step(NamedTuple):
    """A command, and the lines that it prints according to the page."""

    command: str
    shown: tuple[str, ...] = ()


def blocks() -> list[list[Step]]:
    """The shell blocks of the page. A line that begins with # is what the command before it prints."""
    page = (ROOT / "docs" / "tutorials" / "share-a-cluster.md").read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        steps: list[Step] = []
        for line in block.splitlines():
            if line.startswith("#"):
                steps[-1] = Step(steps[-1].command, (*steps[-1].shown, line[1:]))
            else:
                steps.append(Step(line))
        found.append(steps)
    return found


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """… is anything within a line, and as a line of its own any lines; how far columns are apart does not matter."""
    patterns = []
    for line in shown:
        words = " ".join(line.split())
        line_pattern = re.escape(words).replace(r"\ …", "(?: .*)?").replace("…", ".*")
        patterns.append(r"(?:.*\n)*?" if words == "…" else f"{line_pattern}\n")
    lines = "".join(f"{' '.join(line.split())}\n" for line in printed.splitlines())
    return re.fullmatch("".join(patterns), lines) is not None


class Terminal:
    """A shell in which commands are typed one by one."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def type(self, command: str) -> tuple[int, str]:
        """(exit status, what it printed)."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho {DONE} $?\n")
        self._process.stdin.flush()
        printed = ""
        while True:
            try:
                line = self._lines.get(timeout=POLL_SECONDS)
            except Empty:
                raise AssertionError(f"{command} does not end; so far:\n{printed}") from None
            if line.startswith(DONE):
                return int(line.split()[1]), printed
            printed += line

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Reader:
    """Who follows the page: a copy of what it needs of the repository, and two terminals."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "first-terminal.txt"
        shutil.copytree(ROOT / "examples" / "cluster", directory / "examples" / "cluster")
        command = directory / ".venv" / "bin" / "trainyard"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m app.cli.main "$@"\n')
        command.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
        # The page has the usual ports, which may be in use here.
        environment |= {"TRAINYARD_API_PORT": str(free_port()), "TRAINYARD_FLOWER_PORT": str(free_port())}
        environment |= {"PYTHONPATH": str(ROOT)}
        self._environment = environment
        self._first: subprocess.Popen[bytes] | None = None
        self.terminal = Terminal(directory, environment)

    def start(self, steps: list[Step]) -> None:
        with self.output.open("wb") as output:
            self._first = subprocess.Popen(
                ["bash", "-c", "\n".join(step.command for step in steps)],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        first = self._first
        wait_until(lambda: "Ready after" in self.said or first.poll() is not None, START_SECONDS)
        assert first.poll() is None, self.said

    @property
    def said(self) -> str:
        return self.output.read_text()

    def follow(self, step: Step) -> None:
        status, printed = self.terminal.type(step.command)
        deadline = time.monotonic() + POLL_SECONDS
        while step.shown and not matches(step.shown, printed) and time.monotonic() < deadline:
            status, printed = self.terminal.type(step.command)
        assert status == 0, f"{step.command}\n{printed}"
        assert not step.shown or matches(step.shown, printed), "\n".join([step.command, *step.shown, "-- but", printed])

    def stop(self) -> None:
        """Ctrl-C in the first terminal."""
        if self._first is None:
            return
        if self._first.poll() is None:
            shell = psutil.Process(self._first.pid)
            for process in [shell, *shell.children()]:
                if "up" in process.cmdline():
                    process.send_signal(signal.SIGINT)
        try:
            self._first.wait(timeout=90)
        finally:
            self._first.kill()
            self._first = None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    try:
        yield made
    finally:
        made.stop()
        made.terminal.close()


def test_a_reader_sees_what_the_page_shows(reader: Reader) -> None:
    first, *others = blocks()
    reader.start(first)

    for step in (step for block in others for step in block):
        reader.follow(step)

    jobs = reader.terminal.type("trainyard jobs list --quiet")[1].split()
    assert len(jobs) == 10
    reader.stop()
    assert "Stopped." in reader.said
    left = [line for line in command_lines() if str(reader.directory / "data") in line or set(jobs) & set(line.split())]
    assert left == []


def command_lines() -> list[str]:
    return [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
