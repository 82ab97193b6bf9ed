"""Ends remaining processes of finished attempts; devices of those that can't be killed go out of service."""

import logging
import threading
from collections.abc import Sequence

from app.database.engine import Database
from app.host import processes
from app.host.processes import ProcessIdentity, place
from app.services.attempts import work_orders
from app.services.nodes import stuck_devices
from config.settings import Settings
from workers.run_dir.layout import RunDirectory, run_directories
from workers.run_dir.process_registry import mark_ended, mark_left_behind, read_registry

log = logging.getLogger(__name__)

# Most end at once. A process with much memory may need some seconds; its devices are not free before.
FIRST_SECONDS = 2.0
KILL_SECONDS = 5.0
AGAIN_SECONDS = 0.1  # pause before another try
_ending = threading.Lock()  # one thread at a time: another may have just found the process alive


def end(db: Database, run: RunDirectory, job_id: str, attempt: int, *, node: str) -> bool:
    """SIGKILL every process of a finished attempt; False when one survives: its devices go out of service."""
    with _ending:
        roll = read_registry(run, job_id, attempt)
        known: Sequence[ProcessIdentity] = roll.processes if roll is not None else ()
        held = roll.held if roll is not None else work_orders.held_by(db, job_id, attempt, node=node, place=place())
        node = held.node if held is not None else node  # another worker of this machine may own it
        again, actor = run.left.exists(), f"node@{node}"
        if not processes.kill_attempt(
            job_id, attempt, node=node, known=known, seconds=AGAIN_SECONDS if again else FIRST_SECONDS
        ):
            mark_left_behind(run)
            if held is not None:
                stuck_devices.mark(db, held, actor=actor, tell=again)
            if again or not processes.kill_attempt(
                job_id, attempt, node=node, known=known, seconds=KILL_SECONDS - FIRST_SECONDS
            ):
                if held is not None and not again:
                    stuck_devices.mark(db, held, actor=actor)
                return False
        if held is not None and stuck_devices.put_back(db, held.node, job_id, attempt):
            log.warning("job %s: attempt %s is gone at last, its devices are in service again", job_id, attempt)
        mark_ended(run)
        return True


def settle(settings: Settings, db: Database, job_id: str, attempt: int, *, node: str) -> None:
    """End every process of earlier attempts that uses the devices of one that is about to start here.

    The lease of an earlier attempt may have expired before this node cleaned up after it.
    """
    mine = (job_id, attempt)
    there = [each for each in run_directories(settings.data.dir) if each[:2] != mine and not each[2].gone.exists()]
    # Read after the directories were listed: while the devices are reserved for this attempt, all others that had them
    # have ended, except those that share them.
    wanted = work_orders.reserved_for_start(db, job_id, attempt, node) if there else frozenset()
    if not wanted:
        return
    sharing = work_orders.holders(db, node, wanted) - {job_id}
    for other, number, run in there:
        if other in sharing:
            continue
        roll = read_registry(run, other, number)
        held = roll.held if roll is not None else work_orders.held_by(db, other, number, node=node, place=place())
        if held is not None and (held.node, held.place) == (node, place()) and not wanted.isdisjoint(held.devices):
            end(db, run, other, number, node=node)
