"""The scratch directory of one attempt on this node: where its parts lie, and who may touch them."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.processes import ProcessIdentity


@dataclass(frozen=True)
class RunDirectory:
    """DATA_DIR/run/jobs/<job>/<attempt>, and beside it what its ranks must not reach."""

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
    def supervisor(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def taken_over(self) -> Path:
        """What the supervisor took over from the ranks; outside of what they can write."""
        return self.path.with_name(self.path.name + ".taken")

    def make(self) -> None:
        """Create what is missing."""
        for directory in (self.path, self.taken_over):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("work", "checkpoints", "output", "tmp"):
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


def run_directory(data_dir: Path, job_id: str, attempt: int) -> RunDirectory:
    """The directory of an attempt; links in the data directory's own path are followed, as mounts demand it."""
    return RunDirectory(runs_root(data_dir) / job_id / str(attempt))


def runs_root(data_dir: Path) -> Path:
    return data_dir.resolve() / "run" / "jobs"


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """Write JSON that a reader sees whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document))
    temporary.replace(path)
