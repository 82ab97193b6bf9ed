"""The run directory of one attempt on this node: its layout, and which parts ranks can write."""

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.host.processes import ProcessIdentity, own_identity

OVERLAY = "image"  # in a run directory: what its ranks changed of an image


@dataclass(frozen=True)
class RunDirectory:
    """DATA_DIR/run/jobs/<job>/<attempt>, and beside it files that its ranks can't reach.

    Of an attempt on several nodes each part has its own, <attempt>-<part> from the second on: node workers of one
    machine may share a data directory.
    """

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def channel(self) -> Path:
        return self.path / "channel"

    @property
    def checkpoints(self) -> Path:
        """Complete checkpoints that the ranks offer."""
        return self.path / "checkpoints"

    @property
    def output(self) -> Path:
        return self.path / "output"

    @property
    def stacks(self) -> Path:
        """Stacks that ranks write on request."""
        return self.path / "stacks"

    @property
    def supervisor(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def taken_over(self) -> Path:
        """Checkpoints that the supervisor took over, out of the ranks' reach."""
        return self.path.with_name(self.path.name + ".taken")

    @property
    def roll(self) -> Path:
        """Processes of the attempt; see ``workers.run_dir.process_registry``."""
        return self.taken_over / "roll.json"

    @property
    def left(self) -> Path:
        """Exists when a process of the attempt could not be killed."""
        return self.taken_over / "left"

    @property
    def gone(self) -> Path:
        """Exists when no process of the attempt is left; for directories that are kept."""
        return self.taken_over / "gone"

    def make(self) -> None:
        """Create missing directories."""
        for directory in (self.path, self.taken_over):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("work", "checkpoints", "output", "stacks", "tmp"):
            (self.path / name).mkdir(exist_ok=True)

    def write_supervisor(self, identity: ProcessIdentity) -> None:
        """Write the supervisor's identity for later node workers."""
        write_atomically(self.supervisor, vars(identity))

    def remove(self) -> None:
        """Delete everything, including directories that ranks made unreadable."""
        with contextlib.suppress(OSError):  # most have no overlay
            _make_removable(self.path / OVERLAY)
        for directory in (self.path, self.taken_over):
            shutil.rmtree(directory, ignore_errors=True)
        try:
            self.path.parent.rmdir()
        except OSError:  # another attempt of the job is still there
            return


def _make_removable(overlay: Path) -> None:
    """Open the overlay's directory that only root may enter. Raises OSError.

    Without following links: ranks without an image can put anything there.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    with contextlib.ExitStack() as stack:
        descriptor = os.open(overlay, flags)
        stack.callback(os.close, descriptor)
        for name in ("work", "work"):
            descriptor = os.open(name, flags, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101 – of what is open


def run_directory(data_dir: Path, job_id: str, attempt: int, part: int = 0) -> RunDirectory:
    """The directory of an attempt; links in the data directory's own path are followed, as mounts demand it."""
    name = f"{attempt}-{part}" if part else str(attempt)
    return RunDirectory(runs_root(data_dir) / job_id / name)


def remove_earlier(run: RunDirectory) -> None:
    """Delete directories of earlier attempts that this process has run; none of them runs any more.

    The node worker cleans up after other supervisors.
    """
    mine, attempt = vars(own_identity()), int(run.path.name.partition("-")[0])
    for path in run.path.parent.iterdir():
        if not path.name.isdecimal() or int(path.name) >= attempt:
            continue
        earlier = RunDirectory(path)
        try:
            whose = json.loads(earlier.supervisor.read_text())
        except (OSError, ValueError):
            continue
        if whose == mine:
            earlier.remove()


def run_directories(data_dir: Path) -> list[tuple[str, int, RunDirectory]]:
    """(job, attempt, directory) of all run directories on this node."""
    found = {}
    for path in runs_root(data_dir).glob("*/*"):
        name = path.name.removesuffix(".taken")
        number = name.partition("-")[0]
        if number.isdecimal():
            found[path.parent.name, name] = int(number), RunDirectory(path.with_name(name))
    return [(job_id, attempt, directory) for (job_id, _), (attempt, directory) in found.items()]


def runs_root(data_dir: Path) -> Path:
    return data_dir.resolve() / "run" / "jobs"


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """Write JSON atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document))
    temporary.replace(path)
