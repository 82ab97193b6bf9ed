"""The processes of an attempt, recorded on disk, so that a node worker finds them after their supervisor has ended.

Most processes carry their attempt in their environment, but a script may start some with another one, and a process
that hangs in its exit has none any more. Their ancestry is known only while the supervisor lives.
"""

import contextlib
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from app.host import processes
from app.host.processes import ProcessIdentity
from app.services.attempts.work_orders import WorkOrder
from app.services.nodes.stuck_devices import HeldDevices
from workers.run_dir.layout import RunDirectory, write_atomically

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RegisteredProcesses:
    """``held``: the attempt's devices, and the PID namespace of its pids."""

    held: HeldDevices
    processes: tuple[ProcessIdentity, ...] = ()


def held_here(work: WorkOrder) -> HeldDevices:
    """The devices of an attempt that is about to run in this place."""
    return HeldDevices(
        node=work.node,
        devices=tuple(device.index for device in work.devices),
        job_id=work.job_id,
        attempt=work.attempt,
        place=processes.place(),
    )


class ProcessRegistry:
    """Maintained by the supervisor; written only when it has changed."""

    def __init__(self, run: RunDirectory, held: HeldDevices) -> None:
        self._run, self._held = run, held
        self._written: set[ProcessIdentity] | None = None
        self._scans = 0

    def record(self, root_pid: int) -> int:
        """Record descendants of the process, and earlier ones that still live; returns the number of scans so far."""
        self._scans += 1
        found = {each for each in self._written or () if each.is_alive()}
        for pid in processes.descendants(root_pid):
            try:
                found.add(processes.identity_of(pid))
            except ProcessLookupError:
                continue
        if found != self._written:
            self._write(found)
        return self._scans

    def _write(self, found: set[ProcessIdentity]) -> None:
        named = [[each.pid, each.start_ticks] for each in sorted(found, key=lambda each: each.pid)]
        held = self._held
        document = {"node": held.node, "devices": held.devices, "place": held.place, "processes": named}
        try:
            write_atomically(self._run.roll, document)
        except OSError as error:  # a full disk must not fail a training
            log.warning("the processes of the attempt could not be recorded: %s", error)
        else:
            self._written = found

    def mark_ended(self) -> None:
        """No process of the attempt is left."""
        mark_ended(self._run)

    def mark_left_behind(self) -> None:
        """A process can't be killed: keep the run directory until it has ended."""
        mark_left_behind(self._run)


def mark_left_behind(run: RunDirectory) -> None:
    """Keep the directory of an attempt until its process that can't be killed has ended."""
    try:
        run.taken_over.mkdir(parents=True, exist_ok=True)
        run.left.touch()
    except OSError as error:
        log.warning("a process that is left could not be recorded: %s", error)


def mark_ended(run: RunDirectory) -> None:
    """No process of the attempt is left: clean-up need not search for one again if the directory is kept."""
    run.left.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # no directory or no space: clean-up searches for one again
        run.gone.touch()


def read_registry(run: RunDirectory, job_id: str, attempt: int) -> RegisteredProcesses | None:
    """None when there is no readable record."""
    try:
        document = json.loads(run.roll.read_text())
        held = HeldDevices(
            node=document["node"],
            devices=tuple(document["devices"]),
            job_id=job_id,
            attempt=attempt,
            place=document["place"],
        )
        listed: Iterable[tuple[int, int]] = document["processes"]
        return RegisteredProcesses(
            held=held, processes=tuple(ProcessIdentity(pid, ticks, held.place) for pid, ticks in listed)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
