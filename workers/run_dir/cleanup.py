"""What is left of attempts that are over: ended, or its devices given to nobody until it is gone."""

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
from workers.run_dir.process_registry import mark_gone, mark_left_behind, read_registry

log = logging.getLogger(__name__)

# Most are gone at once. A process with much memory may need some seconds; until then nobody shall have its devices.
FIRST_SECONDS = 2.0
KILL_SECONDS = 5.0
AGAIN_SECONDS = 0.1  # for what was not to be ended before
_ending = threading.Lock()  # one thread sees the end of a process that another has just found alive


def end(db: Database, run: RunDirectory, job_id: str, attempt: int, *, node: str) -> bool:
    """SIGKILL every process of an attempt that is over; False when one lives on: its devices are out of service."""
    with _ending:
        roll = read_registry(run, job_id, attempt)
        known: Sequence[ProcessIdentity] = roll.processes if roll is not None else ()
        held = roll.held if roll is not None else work_orders.held_by(db, job_id, attempt, node=node, place=place())
        node = held.node if held is not None else node  # another worker of this machine may look after it
        again, actor = run.left.exists(), f"node@{node}"
        if not processes.kill_attempt(
            job_id, attempt, node=node, known=known, seconds=AGAIN_SECONDS if again else FIRST_SECONDS
        ):  # fmt: skip
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
        mark_gone(run)
        return True


def settle(settings: Settings, db: Database, job_id: str, attempt: int, *, node: str) -> None:
    """See to it that nothing of an earlier attempt uses the devices of one that is about to start here.

    Its lease may have been taken away before anybody on this node looked after it.
    """
    mine = (job_id, attempt)
    there = [each for each in run_directories(settings.data.dir) if each[:2] != mine and not each[2].gone.exists()]
    # Asked after the directories were listed: as long as the devices wait for us, whoever else had them is over, but
    # for those who share them with us.
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
