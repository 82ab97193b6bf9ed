"""Children of `trainyard up`: restarted when they die, ended in order, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.cli.local.process_group import ChildSpec, LocalProcesses

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
]
FORK = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""
FORKING = [sys.executable, "-c", FORK]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def group(tmp_path: Path, said: list[str]) -> Iterator[LocalProcesses]:
    group = LocalProcesses(pid_dir=tmp_path, log_dir=tmp_path, say=said.append)
    yield group
    group.stop(group.names(), seconds=0.0)


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., ChildSpec]:
    def make(name: str, command: list[str], **more: object) -> ChildSpec:
        return ChildSpec(name=name, command=command, environment=dict(os.environ), directory=tmp_path, **more)  # type: ignore[arg-type]

    return make


Spec = Callable[..., ChildSpec]


def wait_until(happens: Callable[[], object], group: LocalProcesses | None = None, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        if group is not None:
            group.keep_running()
        time.sleep(0.01)


def pid_of(tmp_path: Path, name: str) -> int:
    return int((tmp_path / f"{name}.pid").read_text())


def test_a_child_has_a_pid_file_and_a_log(group: LocalProcesses, spec: Spec, tmp_path: Path) -> None:
    group.start(spec("one", [sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(60)"]))

    wait_until(lambda: "hello" in (tmp_path / "one.log").read_text())

    assert psutil.pid_exists(pid_of(tmp_path, "one"))


def test_a_killed_child_is_started_again(group: LocalProcesses, spec: Spec, tmp_path: Path, said: list[str]) -> None:
    group.start(spec("one", SLEEP))
    first = pid_of(tmp_path, "one")

    os.kill(first, signal.SIGKILL)
    wait_until(lambda: pid_of(tmp_path, "one") != first, group)

    assert group.is_running("one")
    assert "one ended (SIGKILL)" in said[0]


def test_the_pause_before_a_restart_grows(group: LocalProcesses, spec: Spec, said: list[str]) -> None:
    group.start(spec("one", [sys.executable, "-c", "raise SystemExit(7)"]))

    wait_until(lambda: len(said) == 3, group)

    assert ["exit code 7" in line for line in said] == [True, True, True]
    assert [line.split(" in ")[1].split(" s")[0] for line in said] == ["0.2", "0.4", "0.8"]


def test_what_a_dead_child_had_started_is_ended_before_its_successor(
    group: LocalProcesses, spec: Spec, tmp_path: Path
) -> None:
    group.start(spec("one", FORKING))
    log = tmp_path / "one.log"
    wait_until(lambda: log.read_text().strip())
    grandchild = int(log.read_text())

    os.kill(pid_of(tmp_path, "one"), signal.SIGKILL)
    wait_until(lambda: len(log.read_text().split()) == 2, group)

    wait_until(lambda: not _is_alive(grandchild))


def test_stopping_ends_everything_and_removes_the_pid_files(group: LocalProcesses, spec: Spec, tmp_path: Path) -> None:
    for name in ("one", "two"):
        group.start(spec(name, SLEEP))
    pids = [pid_of(tmp_path, name) for name in ("one", "two")]

    group.stop(["one", "two"], seconds=5.0)

    assert not any(_is_alive(pid) for pid in pids)
    assert not list(tmp_path.glob("*.pid"))
    assert group.names() == []


def test_a_child_that_ignores_sigterm_is_killed(
    group: LocalProcesses, spec: Spec, tmp_path: Path, said: list[str]
) -> None:
    group.start(spec("one", STUBBORN))
    wait_until(lambda: "ready" in (tmp_path / "one.log").read_text())
    pid = pid_of(tmp_path, "one")

    group.stop(["one"], seconds=0.2)

    assert not _is_alive(pid)
    assert said == ["one did not stop in time and is killed"]


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from app.cli.local.process_group import ChildSpec, LocalProcesses\n"
        f"here = Path({str(tmp_path)!r})\n"
        "group = LocalProcesses(pid_dir=here, log_dir=here, say=print)\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "group.start(ChildSpec(name='one', command=sleep, environment=dict(os.environ), directory=here))\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    wait_until((tmp_path / "one.pid").exists)
    child = pid_of(tmp_path, "one")

    parent.kill()
    parent.wait()

    wait_until(lambda: not _is_alive(child))


def test_a_child_does_not_get_the_terminals_ctrl_c_and_none_of_our_blocked_signals(
    group: LocalProcesses, spec: Spec, tmp_path: Path
) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        group.start(spec("one", SLEEP))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    pid = pid_of(tmp_path, "one")

    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())

    assert os.getpgid(pid) == pid
    assert int(status["SigBlk"], 16) == 0


def test_a_long_log_is_put_aside(
    group: LocalProcesses, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.local.process_group.LOG_BYTES", 10)
    (tmp_path / "one.log").write_text("x" * 20)

    group.start(spec("one", SLEEP))

    assert (tmp_path / "one.log.1").read_text() == "x" * 20


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
