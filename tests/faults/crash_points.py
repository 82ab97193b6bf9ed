"""Exact moments in the processes of a system, at which they can be killed or stopped without a line of it knowing."""

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.systems.system import wait_for

INJECTED = Path(__file__).parent / "injected"


@dataclass(frozen=True)
class Point:
    """``target`` is ``module:function`` or ``module:Class.method``; ``moment`` is one of m1 to m24 in a job's life."""

    name: str
    moment: str
    target: str
    when: str  # before, after


POINTS = (
    Point("m1-request-parsed", "m1", "app.services.jobs.submission:check", "before"),
    Point("m2-before-commit", "m2", "app.services.jobs.submission:store", "after"),
    Point("m3-before-reply", "m3", "app.services.requests.wakeups:Dispatcher.ring_admit", "before"),
    Point("m4-before-doorbell", "m4", "app.services.requests.wakeups:Dispatcher._sent", "before"),
    Point("m4-admitted", "m4", "app.services.preflight.admission:admit_waiting", "after"),
    Point("m5-placed", "m5", "app.services.scheduling.placement:place", "after"),
    Point("m6-doorbell-taken", "m6", "workers.node.spawn_supervisor:start_attempts", "before"),
    Point("m7-before-claim", "m7", "app.services.attempts.leases:claim", "before"),
    Point("m8-claimed", "m8", "app.services.attempts.leases:claim", "after"),
    Point("m8-spawned", "m8", "workers.node.spawn_supervisor:_is_spawned", "after"),
    Point("m8-registering", "m8", "app.services.attempts.leases:register_supervisor", "before"),
    Point("m8-registered", "m8", "app.services.attempts.leases:register_supervisor", "after"),
    Point("m9-preparing", "m9", "workers.prepare.prepare:prepare", "before"),
    Point("m10-prepared", "m10", "workers.prepare.prepare:prepare", "after"),
    Point("m11-launching", "m11", "workers.sandbox.launcher:launch", "before"),
    Point("m12-launched", "m12", "workers.sandbox.launcher:launch", "after"),
    Point("m14-taking-over", "m14", "trainyard.protocol.checkpoint_manifest:verify", "before"),
    Point("m14-before-storing", "m14", "app.storage.storage:Storage.put_tree", "before"),
    Point("m14-stored", "m14", "app.storage.storage:Storage.put_tree", "after"),
    Point("m14-recording", "m14", "app.services.attempts.checkpoints:record", "before"),
    Point("m14-recorded", "m14", "app.services.attempts.checkpoints:record", "after"),
    Point("m15-pruning", "m15", "app.storage.storage:Storage.delete_tree", "before"),
    Point("m15-pruned", "m15", "app.storage.storage:Storage.delete_tree", "after"),
    Point("m17-exporting", "m17", "workers.supervisor.recording.model_export:store_model", "before"),
    Point("m17-exported", "m17", "workers.supervisor.recording.model_export:store_model", "after"),
    Point("m18-before-finish", "m18", "app.services.attempts.work_orders:finish", "before"),
    Point("m19-finished", "m19", "app.services.attempts.work_orders:finish", "after"),
    Point("m20-cleaning", "m20", "workers.run_dir.layout:RunDirectory.remove", "before"),
    Point("m21-cancel-requested", "m21", "app.services.jobs.control.requests:request_cancel", "after"),
    Point("m21-cancel-read", "m21", "workers.supervisor.control.rank_group:RankGroup.terminate", "before"),
    Point("m22-asked-to-stop", "m22", "workers.supervisor.control.rank_group:RankGroup.ask_to_stop", "after"),
)


class CrashPoints:
    """The points of one system, in a folder that its processes read."""

    def __init__(self, folder: Path, points: Sequence[Point]) -> None:
        self._folder = folder
        self._names = frozenset(point.name for point in points)
        folder.mkdir(parents=True)
        (folder / "points.json").write_text(json.dumps([asdict(point) for point in points]))

    @property
    def environment(self) -> dict[str, str]:
        path = [str(INJECTED), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        # Only a process that starts as a program of its own finds what is injected.
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "TESTS_CRASH_POINTS": str(self._folder),
            "TRAINYARD_NODE_WARM": "off",
        }

    def arm(self, name: str, *, job_id: str = "", nth: int = 1, signal_number: signal.Signals = signal.SIGKILL) -> None:
        """From now on the first process that comes to the point for the ``nth`` time gets the signal from itself.

        ``job_id``: only when it is about this job.
        """
        if name not in self._names:
            raise KeyError(name)
        self.disarm(name)
        temporary = self._folder / f"{name}.new"
        temporary.write_text(json.dumps({"job": job_id, "nth": nth, "signal": signal_number.name}))
        temporary.rename(self._folder / f"{name}.armed")

    def disarm(self, name: str) -> None:
        for kind in ("armed", "fired"):
            (self._folder / f"{name}.{kind}").unlink(missing_ok=True)

    def fired(self, name: str) -> dict[str, Any] | None:
        """Which process it hit and when (``pid``, ``boot_ns``, ``argv``); None as long as it hit none."""
        try:
            return dict(json.loads((self._folder / f"{name}.fired").read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def wait_until_fired(self, name: str, *, seconds: float = 30) -> dict[str, Any]:
        return wait_for(lambda: self.fired(name), seconds=seconds, what=f"{name} reached")


def process_is(fired: dict[str, Any], pid: int) -> bool:
    """Whether the process that was hit is this one, or a child of it (gunicorn's workers are)."""
    if int(fired["pid"]) == pid:
        return True
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return children.exists() and str(fired["pid"]) in children.read_text().split()


def continue_process(fired: dict[str, Any]) -> None:
    """Continue a process that was stopped at a point."""
    os.kill(int(fired["pid"]), signal.SIGCONT)
