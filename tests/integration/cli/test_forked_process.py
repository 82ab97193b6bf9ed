"""Children of `trainyard up` that are forks of it: they have what a start of their own would have given them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

# `start.HOW` is what the parent made of it only in a fork.
START = "HOW = 'executed'\n"
CHILD = """
import atexit, json, os, signal, sys, threading, time
import start

def main():
    open_files = {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{fd}")}
    print(json.dumps({
        "how": start.HOW, "name": __name__, "arguments": sys.argv[1:], "environment": dict(os.environ),
        "directory": os.getcwd(), "blocked": [str(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "open": sorted(open_files), "nice": os.nice(0),
    }), flush=True)
    if sys.argv[1:] == ["ends"]:
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        sys.exit("a reason")
    if sys.argv[1:] == ["fails"]:
        raise ValueError("broken")
    time.sleep(60)

if __name__ == "__main__":
    main()
"""
# The parent: PARENT DIRECTORY ARGUMENT… starts one child, and keeps it running.
PARENT = """
import os, signal, sys, threading, time
from pathlib import Path
from app.cli.local.process_group import ChildSpec, LocalProcesses
import start
start.HOW = "forked"
here, prelude, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
held = (here / "held").open("w")
passed, _ = os.pipe()
exec(prelude)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
group = LocalProcesses(pid_dir=here, log_dir=here, say=lambda text: print(text, flush=True))
group.start(ChildSpec(
    name="one", command=[sys.executable, "-m", "child", *arguments], directory=here / "work", niceness=3, forks=True,
    environment={"PATH": "/bin", "PYTHONPATH": os.environ["PYTHONPATH"], "ONLY": "this"}, pass_fds=(passed,),
))
print("passed", passed, flush=True)
while True:
    group.keep_running()
    time.sleep(0.02)
"""
REFUSED = """
import ctypes, platform, struct
number = {"x86_64": 157, "aarch64": 167}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 35)]  # prctl(PR_SET_MM, …)
code += [(6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]  # fails with EPERM; everything else is allowed
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)), 0, 0) == 0
"""
THREADS = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


@dataclass
class Parent:
    process: "subprocess.Popen[str]"
    directory: Path

    def child(self) -> int:
        wait_until((self.directory / "one.pid").exists)
        return int((self.directory / "one.pid").read_text())

    def log(self) -> list[str]:
        path = self.directory / "one.log"
        return path.read_text().splitlines() if path.exists() else []

    def said(self, number: int = 0) -> dict[str, object]:
        """What the child, or its successor, said of itself."""
        wait_until(lambda: len(self.log()) > number)
        said: dict[str, object] = json.loads(self.log()[number])
        return said

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


Start = Callable[..., Parent]


@pytest.fixture
def start(tmp_path: Path, owned_pids: set[int]) -> Iterator[Start]:
    (tmp_path / "start.py").write_text(START)
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "work").mkdir()
    running = []

    def begin(*arguments: str, prelude: str = "", stdin: bool = True) -> Parent:
        path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(tmp_path), prelude, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            preexec_fn=None if stdin else lambda: os.close(0),  # noqa: PLW1509 – no threads here
        )
        owned_pids.add(process.pid)
        running.append(process)
        return Parent(process, tmp_path)

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def wait_until(happens: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_fork_has_what_a_start_of_its_own_has(start: Start, tmp_path: Path) -> None:
    parent = start("one", "two")
    said, pid = parent.said(), parent.child()
    passed = int(parent.line().split()[1])

    assert (said["how"], said["name"], said["arguments"]) == ("forked", "__main__", ["one", "two"])
    assert said["directory"] == str(tmp_path / "work")
    assert said["blocked"] == []
    assert said["nice"] == 3
    environment = said["environment"]
    assert isinstance(environment, dict)
    assert environment["ONLY"] == "this"
    assert "HOME" not in environment
    assert said["open"] == [0, 1, 2, passed], "neither the parent's files nor its sockets"
    assert psutil.Process(pid).cmdline() == [sys.executable, "-m", "child", "one", "two"]
    assert psutil.Process(pid).environ() == environment
    assert os.getpgid(pid) == pid


def test_a_restart_is_no_fork(start: Start) -> None:
    parent = start()
    assert parent.said()["how"] == "forked"
    parent.line()

    os.kill(parent.child(), signal.SIGKILL)

    assert "one ended (SIGKILL)" in parent.line()
    assert parent.said(1)["how"] == "executed"


def test_a_fork_dies_with_its_parent(start: Start) -> None:
    parent = start()
    parent.said()
    child = psutil.Process(parent.child())

    parent.process.kill()

    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    "how",
    [{"prelude": THREADS}, {"prelude": REFUSED}, {"stdin": False}],
    ids=["threads", "the kernel refuses", "no standard input"],
)
def test_what_could_not_be_whole_is_executed(start: Start, how: Mapping[str, Any]) -> None:
    parent = start("one", **how)

    assert parent.said()["how"] == "executed"
    assert psutil.Process(parent.child()).cmdline() == [sys.executable, "-m", "child", "one"]


def test_a_fork_ends_as_a_program_ends(start: Start) -> None:
    parent = start("ends")
    parent.line()

    assert "one ended (exit code 1)" in parent.line()
    assert parent.log()[1:4] == ["a reason", "thread", "at exit"]


def test_an_error_is_in_the_log_of_the_fork(start: Start) -> None:
    parent = start("fails")
    parent.line()

    assert "one ended (exit code 1)" in parent.line()
    assert "ValueError: broken" in parent.log()
