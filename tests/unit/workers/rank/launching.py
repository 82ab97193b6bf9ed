"""Starts real ranks for tests: writes a spec and a script, launches them in either sandbox."""

import errno
import json
import os
import select
import time
from pathlib import Path
from typing import Any

from app.domain.ids import new_id
from app.host.processes import processes_of_attempt
from trainyard.protocol.run_spec import Gang, RunSpec
from workers.sandbox.control_groups import GroupLimits, Hierarchies
from workers.sandbox.launcher import LaunchedRanks, LaunchPlan, launch
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

# Processes are found and killed by it: one of each run of tests, and of the processes that these start.
JOB = os.environ.setdefault("TESTED_JOB", new_id("job"))


def attempt_processes() -> list[int]:
    return processes_of_attempt(JOB, 1)


def no_process_is_left() -> bool:
    """Soon: bubblewrap's outer process may end a moment before the kernel has ended all in its namespace."""
    due = time.monotonic() + 2
    while attempt_processes() and time.monotonic() < due:
        time.sleep(0.02)
    return not attempt_processes()


def write_script(directory, text, name="train.py"):
    """A script in a directory of its own, as a user would have it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    return directory / name


def make_plan(
    tmp_path,
    script: Path,
    sandbox: Sandbox,
    *,
    world_size=1,
    environment=None,
    readable=(),
    gang=None,
    launcher="",
    arguments=(),
    command=(),
    mpi=None,
    terminal=False,
) -> LaunchPlan:
    data_dir = tmp_path / "data"
    run_dir = data_dir / "run" / "jobs" / JOB / "1"
    for name in ("work", "output", "checkpoints", "tmp"):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
    spec = RunSpec(
        job_id=JOB,
        run_dir=run_dir,
        channel=str(run_dir / "channel"),
        framework="CUSTOM",
        training_type="",
        hyperparameters={},
        script=str(run_dir / "code" / script.name),
        arguments=tuple(arguments),
        command=tuple(command),
        directory=str(run_dir / ("code" if command else "work")),
        model_path="/srv/models/base",
        data_paths=tuple(str(path) for path in readable),
        device_indices=tuple(range(world_size)),
        world_size=world_size,
        launcher=launcher,
        terminal=terminal,
        gang=None if gang is None else Gang(**gang),
    )
    spec_path = run_dir / "spec.json"
    spec_path.write_text(json.dumps(spec.to_document()))
    view = FilesystemView(
        run_dir=run_dir, data_dir=data_dir, code=script.parent, readable=tuple(readable), protected=(spec_path,)
    )
    return LaunchPlan(
        spec=spec,
        spec_path=spec_path,
        confinement=SandboxSpec(view=view),
        sandbox=sandbox,
        job_environment=dict(environment or {}),
        limits=GroupLimits(),
        groups=Hierarchies({}, 1),
        mpi=mpi,
    )


class Run:
    """Launched ranks whose log and reports are collected until the agent ends."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.launched: LaunchedRanks = launch(plan)
        self.logs: list[bytes] = [b"" for _ in self.launched.log_fds]
        self._open_logs = dict(enumerate(self.launched.log_fds))
        self.reports = b""

    def read_until(self, text: str, *, rank=0, seconds=10.0) -> None:
        deadline = time.monotonic() + seconds
        while text.encode() not in self.logs[rank]:
            assert time.monotonic() < deadline, f"never said {text!r}: {self.logs}"
            self._read_some()

    def finish(self, seconds=15.0) -> int:
        """The agent's exit code, after everything was read."""
        deadline = time.monotonic() + seconds
        while self._read_some():
            assert time.monotonic() < deadline, f"still running: {self.logs}"
        return self.launched.wait()

    def close(self) -> None:
        self.launched.kill()
        self.launched.control.close()
        for fd in self.launched.log_fds:
            os.close(fd)

    @property
    def exits(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.reports.splitlines()]

    def log(self, rank: int = 0) -> str:
        return self.logs[rank].decode()

    def _read_some(self) -> bool:
        """False once the agent hung up."""
        sources: list[Any] = [self.launched.control, *self._open_logs.values()]
        readable, _, _ = select.select(sources, [], [], 0.5)
        open_ = True
        for source in readable:
            if source is self.launched.control:
                data = self.launched.control.recv(65536)
                self.reports += data
                open_ = bool(data)
        for rank, fd in list(self._open_logs.items()):
            self._drain(rank, fd)
        return open_

    def _drain(self, rank: int, fd: int) -> None:
        while True:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EIO:  # the end of a terminal
                    raise
                data = b""
            if not data:  # it would be readable for as long as the other ranks run
                del self._open_logs[rank]
                return
            self.logs[rank] += data
