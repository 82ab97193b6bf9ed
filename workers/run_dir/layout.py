"""The scratch directory of one attempt on this node: where its parts lie, and who may touch them."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.host.processes import ProcessIdentity, own_identity


@dataclass(frozen=True)
class RunDirectory:
    """DATA_DIR/run/jobs/<job>/<attempt>, and beside it what its ranks must not reach.

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
        """Complete checkpoints that wait to be taken over."""
        return self.path / "checkpoints"

    @property
    def output(self) -> Path:
        return self.path / "output"

    @property
    def stacks(self) -> Path:
        """What ranks write when they are asked where they are."""
        return self.path / "stacks"

    @property
    def supervisor(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def taken_over(self) -> Path:
        """What the supervisor took over from the ranks; outside of what they can write."""
        return self.path.with_name(self.path.name + ".taken")

    @property
    def roll(self) -> Path:
        """Which processes the attempt has; see ``workers.run_dir.process_registry``."""
        return self.taken_over / "roll.json"

    @property
    def left(self) -> Path:
        """There when a process of the attempt could not be ended."""
        return self.taken_over / "left"

    @property
    def gone(self) -> Path:
        """There when it is known that no process of the attempt is left; kept directories have it."""
        return self.taken_over / "gone"

    def make(self) -> None:
        """Create what is missing."""
        for directory in (self.path, self.taken_over):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("work", "checkpoints", "output", "stacks", "tmp"):
            (self.path / name).mkdir(exist_ok=True)

    def write_supervisor(self, identity: ProcessIdentity) -> None:
        """Leave a note by which a later node worker, or a person, recognises the supervisor."""
        write_atomically(self.supervisor, vars(identity))

    def remove(self) -> None:
        """Delete everything, also what ranks made unreadable for themselves."""
        for directory in (self.path, self.taken_over):
            shutil.rmtree(directory, ignore_errors=True)
        try:
            self.path.parent.rmdir()
        except OSError:  # another attempt of the job is still there
            return


def run_directory(data_dir: Path, job_id: str, attempt: int, part: int = 0) -> RunDirectory:
    """The directory of an attempt; links in the data directory's own path are followed, as mounts demand it."""
    name = f"{attempt}-{part}" if part else str(attempt)
    return RunDirectory(runs_root(data_dir) / job_id / name)


def remove_earlier(run: RunDirectory) -> None:
    """Delete what earlier attempts of this very process have left; it runs one after the other, and none any more.

    Other attempts of the job on this node had supervisors of their own: the node worker looks after what those left.
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
    """(job, attempt, directory) of all that lie on this node."""
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
    """Write JSON that a reader sees whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document))
    temporary.replace(path)
