"""Stack dumps of hanging ranks: their own, or the kernel's view of ranks that do not respond."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.host import processes
from tests.trainers.supervision import ROOT
from workers.run_dir.layout import RunDirectory
from workers.supervisor.control import stack_dump
from workers.supervisor.control.stack_dump import MAX_STACK_BYTES, dump

REGISTERS = """
import pathlib, sys, time
from trainyard.protocol import stacks as _stacks
def deep_inside():
    print("ready", flush=True)
    time.sleep(60)
assert _stacks.register(pathlib.Path(sys.argv[1]), 0)
deep_inside()
"""
LISTENS = """
import pathlib, signal, sys, threading
from trainyard.protocol import stacks as _stacks
def deep_inside():
    while True:
        pass
assert _stacks.register(pathlib.Path(sys.argv[1]), 0)
signal.signal(signal.SIGUSR2, signal.SIG_DFL)  # now it ends the process
threading.Thread(target=deep_inside, daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    _stacks.write()
"""
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"


def unheard() -> None:
    """Asks ranks in which no thread listens."""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "1")
    run.make()
    return run


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ranks that will not answer."""
    monkeypatch.setattr(stack_dump, "ANSWER_SECONDS", 0.3)


@contextmanager
def started(script: str, run: RunDirectory) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
def test_rank_writes_where_it_is(run):
    with started(REGISTERS, run) as process:
        text = dump(run, 0, {0: process.pid}, {0}, unheard)

    assert "in deep_inside" in text
    assert f"process {process.pid}" in text
    assert "state S (sleeping)" in text


def test_rank_that_can_hear_is_sent_no_signal(run):
    """It would meet threads that run, and end the process now and then."""

    def ask() -> None:
        assert process.stdin is not None
        process.stdin.write(b"stacks\n")
        process.stdin.flush()

    with started(LISTENS, run) as process:
        text = dump(run, 0, {0: process.pid}, {0}, ask)
        alive = process.poll() is None

    assert "in deep_inside" in text
    assert alive


@pytest.mark.long
def test_dumps_of_the_same_attempt_do_not_mix(run):
    with started(REGISTERS, run) as process:
        pid = process.pid
        dump(run, 0, {0: pid}, {0}, unheard)
        text = dump(run, 0, {0: pid}, {0}, unheard)

    assert text.count("in deep_inside") == 1


def test_rank_that_never_registered_is_left_alone(run):
    with started(SLEEPS, run) as process:
        pid = process.pid
        text = dump(run, 0, {0: pid}, set(), unheard)
        alive = processes.state_of(pid)

    assert alive == "S"
    assert "does not write its stacks" in text
    assert f"thread {pid}" in text


@pytest.mark.usefixtures("impatient")
def test_file_that_a_rank_replaced_is_not_followed(run):
    """The link appears with the signal: of a file that was there before, only what was added is read."""
    (run.path / "secret").write_text("another user's secret")
    replaces = (
        "import os, signal, sys, time\nrun = sys.argv[1]\n"
        "def replace(*_):\n    os.path.lexists(run + '/stacks/rank-0.txt') or "
        "os.symlink(run + '/secret', run + '/stacks/rank-0.txt')\n"
        "signal.signal(signal.SIGUSR2, replace)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    with started(replaces, run) as process:
        text = dump(run, 0, {0: process.pid}, {0}, unheard)

    assert (run.stacks / "rank-0.txt").is_symlink()
    assert "did not write its stacks" in text
    assert "another user's secret" not in text


@pytest.mark.usefixtures("impatient")
def test_pipe_in_place_of_the_file_does_not_block(run):
    os.mkfifo(run.stacks / "rank-0.txt")
    ignores = "import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\n" + SLEEPS
    with started(ignores, run) as process:
        pid = process.pid
        began = time.monotonic()
        text = dump(run, 0, {0: pid}, {0}, unheard)

    assert "did not write its stacks" in text
    assert time.monotonic() - began < 10


@pytest.mark.long
def test_flood_is_cut(run):
    floods = REGISTERS.replace("deep_inside()\n", "pass\n") + (
        "import signal\ndef flood(*_):\n    open(sys.argv[1] + '/stacks/rank-0.txt', 'w').write('x' * 10_000_000)\n"
        "signal.signal(signal.SIGUSR2, flood)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    with started(floods, run) as process:
        pid = process.pid
        text = dump(run, 0, {0: pid}, {0}, unheard)

    assert MAX_STACK_BYTES // 2 < len(text) < 2 * MAX_STACK_BYTES
