"""Which processes an attempt has, on disk: whoever looks after a supervisor that is gone finds them by it.

A process carries its attempt in its environment, but not all do: a script may start some with another one, and whoever
hangs in its exit has none any more. What they descend from is known only as long as the supervisor lives.
"""

import contextlib
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from app.host import processes
from app.host.processes import ProcessIdentity
from app.services.attempts.work_orders import Work
from app.services.nodes.stuck_devices import Held
from workers.run_dir.layout import RunDirectory, write_atomically

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RegisteredProcesses:
    """``held``: what the attempt has been given, and where its pids mean something."""

    held: Held
    processes: tuple[ProcessIdentity, ...] = ()


def held_here(work: Work) -> Held:
    """The devices of an attempt that is about to run in this place."""
    return Held(
        node=work.node, devices=tuple(device.index for device in work.devices), job_id=work.job_id,
        attempt=work.attempt, place=processes.place(),
    )  # fmt: skip


class ProcessRegistry:
    """Kept by the supervisor; written only when it has changed."""

    def __init__(self, run: RunDirectory, held: Held) -> None:
        self._run, self._held = run, held
        self._written: set[ProcessIdentity] | None = None
        self._scans = 0

    def record(self, root_pid: int) -> int:
        """Everything below the process, and what was below it before and still lives; returns which call it is."""
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
        except OSError as error:  # a full disk must not end a training
            log.warning("the processes of the attempt could not be written down: %s", error)
        else:
            self._written = found

    def mark_gone(self) -> None:
        """None of them is left."""
        mark_gone(self._run)

    def mark_left_behind(self) -> None:
        """One of them can't be ended: its directory is kept until it is gone."""
        mark_left_behind(self._run)


def mark_left_behind(run: RunDirectory) -> None:
    """Keep the directory of an attempt until a process of it is gone that can't be ended now."""
    try:
        run.taken_over.mkdir(parents=True, exist_ok=True)
        run.left.touch()
    except OSError as error:
        log.warning("it could not be written down that a process is left: %s", error)


def mark_gone(run: RunDirectory) -> None:
    """No process of the attempt is left: if its directory is kept, nobody has to look for one again."""
    run.left.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there is no directory, or no room: then it is looked for again
        run.gone.touch()


def read_registry(run: RunDirectory, job_id: str, attempt: int) -> RegisteredProcesses | None:
    """None when nothing, or nothing that can be read, was written down."""
    try:
        document = json.loads(run.roll.read_text())
        held = Held(
            node=document["node"], devices=tuple(document["devices"]), job_id=job_id, attempt=attempt,
            place=document["place"],
        )  # fmt: skip
        listed: Iterable[tuple[int, int]] = document["processes"]
        return RegisteredProcesses(
            held=held, processes=tuple(ProcessIdentity(pid, ticks, held.place) for pid, ticks in listed)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
