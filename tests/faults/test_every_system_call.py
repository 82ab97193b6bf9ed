"""A process is killed at every system call of saving a checkpoint, and each call fails once: no earlier checkpoint is
lost, and every stored one is complete (P-19, P-20, P-22, P-23).

strace counts a process's calls of one kind and injects into the n-th. The sweep continues until a run ends untouched,
so no call is left out.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from app.database.engine import Database, make_engine
from app.models import Checkpoint
from app.services.operations.orphan_cleanup import OrphanSweep
from tests.builders.factories import make_attempt, make_job, make_node
from tests.faults.invariants import checkpoint_problems
from tests.systems.system import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

# What makes a save durable or visible. `make faults` takes those between, too.
KILLED_AT = ("fsync", "fdatasync", "rename", "mkdir", "unlinkat")
KILLED_AT_ANY = ("openat", "write", "pwrite64", "ftruncate", "close", "unlink", "rmdir")
FAILING = (
    ("fsync", "EIO"),
    ("rename", "ENOSPC"),
    ("mkdir", "ENOSPC"),
    ("write", "ENOSPC"),
    ("mkdir", "EDQUOT"),
    ("write", "EDQUOT"),
)
MOST_CALLS = 400


@dataclass
class Saver:
    """A job that is being trained, and the process that saves for it."""

    folder: Path
    job_id: str
    db: Database
    process: "subprocess.Popen[str]"
    step: int = 0
    was_injected: bool = False  # into the last save

    def save(self, *inject: str) -> tuple[int, int]:
        """(step, exit code) of one save, with strace injecting into it; negative is the signal that killed it."""
        self.step += 1
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.step}\n")
        self.process.stdin.flush()
        pid = int(self._read())
        wait_for(lambda: _state(pid) == "T", seconds=10, what="the child has stopped itself")
        if not inject:
            os.kill(pid, signal.SIGCONT)
            return self.step, int(self._read())
        strace = ["strace", "-f", "-qqq", "-o", str(self.folder / "strace"), *inject, "-p", str(pid)]
        with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracer:
            wait_for(lambda: _is_traced(pid) or tracer.poll() is not None, seconds=10, what="strace has attached")
            os.kill(pid, signal.SIGCONT)
            code = int(self._read())
            _, said = tracer.communicate(timeout=20)
            assert "Operation not permitted" not in said, f"strace may not trace here: {said}"
            self.was_injected = "(INJECTED)" in (self.folder / "strace").read_text()
        return self.step, code

    def listed(self) -> list[Checkpoint]:
        """What the job could be resumed from, oldest first."""
        with self.db.read() as session:
            query = select(Checkpoint).where(Checkpoint.deleted_at.is_(None)).order_by(Checkpoint.step)
            return list(session.scalars(query))

    def problems(self) -> list[str]:
        """What is wrong with what is listed."""
        folder = self.folder / "files" / "jobs" / self.job_id / "checkpoints"
        return [f"{c.step}: {what}" for c in self.listed() for what in checkpoint_problems(folder / c.id)]

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture(scope="module")
def saver(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path, owned_pids: set[int]) -> Iterator[Saver]:
    folder = tmp_path_factory.mktemp("saving")
    shutil.copyfile(migrated_sqlite, folder / "trainyard.db")
    url = f"sqlite:///{folder / 'trainyard.db'}"
    db = Database().bind(make_engine(url))
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job_id = job.id
    command = [sys.executable, "-m", "tests.faults.saving", str(folder), url, job_id]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        owned_pids.add(process.pid)
        saver = Saver(folder, job_id, db, process)
        for _ in range(4):  # so many that each further one also retires one
            assert saver.save()[1] == 0
        yield saver
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()
        db.close()


@pytest.mark.parametrize("call", KILLED_AT)
def test_checkpoints_survive_a_kill_at_each_critical_system_call(saver: Saver, call: str) -> None:
    assert kill_at_each(saver, call) > 0


@pytest.mark.parametrize("call", KILLED_AT_ANY)
@pytest.mark.faults
def test_checkpoints_survive_a_kill_at_every_system_call(saver: Saver, call: str) -> None:
    kill_at_each(saver, call)


@pytest.mark.parametrize(("call", "error"), FAILING, ids=[f"{call}-{error}" for call, error in FAILING])
def test_checkpoints_survive_a_failure_of_each_system_call(saver: Saver, call: str, error: str) -> None:
    """The save is refused, or it holds: then the disk was asked again."""
    for n in range(1, MOST_CALLS):
        before = {checkpoint.step for checkpoint in saver.listed()}
        inject = f"{call}:error={error}:when={n}"
        step, code = saver.save("-e", f"trace={call}", "-e", f"inject={inject}")
        assert saver.problems() == [], inject
        assert max(c.step for c in saver.listed()) >= max(before), inject
        assert code == 1 or step in {c.step for c in saver.listed()}, inject
        if not saver.was_injected:
            break
    assert code == 0, "it was saved in the run that nothing was injected into"
    assert saver.save()[1] == 0, "and the next one is saved"
    _nothing_is_left(saver)


def kill_at_each(saver: Saver, call: str) -> int:
    """How many times the call was there to be killed at."""
    for n in range(1, MOST_CALLS):
        before = {checkpoint.step for checkpoint in saver.listed()}
        inject = f"{call}:signal=KILL:when={n}"
        step, code = saver.save("-e", f"trace={call}", "-e", f"inject={inject}")
        assert saver.problems() == [], inject
        assert max(c.step for c in saver.listed()) >= max(before), inject
        if code == 0:
            assert step in {c.step for c in saver.listed()}
            _nothing_is_left(saver)
            return n - 1
        assert code == -signal.SIGKILL, inject
    raise AssertionError(f"more than {MOST_CALLS} calls of {call}")


def _nothing_is_left(saver: Saver) -> None:
    """In the storage lies what is recorded, once the sweep was through."""
    OrphanSweep(saver.db, f"file://{saver.folder / 'files'}", age_limit=timedelta(0)).run_round()
    folder = saver.folder / "files" / "jobs" / saver.job_id / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == sorted(c.id for c in saver.listed())


def _state(pid: int) -> str:
    return _status(pid, "State")[:1]


def _is_traced(pid: int) -> bool:
    return _status(pid, "TracerPid") != "0"


def _status(pid: int, field: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return value.strip()
    return ""
