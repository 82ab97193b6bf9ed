"""Follows the instances of roles of all nodes: tells the agent when others have started, and when all work has ended.

Every part writes into the attempt's row how far its instances are, and reads there what it waits for. The
supervisor of a job on one node needs no other, and answers at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost
from app.domain.lifecycle.events import EventType
from app.services.attempts import role_rendezvous, work_instances
from app.services.attempts.role_rendezvous import PartProgress
from app.services.attempts.work_orders import WorkOrder
from trainyard.protocol.channel import Message
from trainyard.protocol.role_messages import (
    RELEASE,
    ROLES_STARTED,
    InstanceEnded,
    InstanceStarted,
    RoleReport,
    TaskRestarted,
    WorkEnded,
    parse,
)
from workers.supervisor.ranks.instance_usage import InstanceUsage, Key
from workers.supervisor.recording.report_writer import Note

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
RETRY_SECONDS = 0.5


class NoRoles:
    """Of a job whose ranks all run the same program."""

    def begin(self, _root_pid: int) -> None:
        pass

    def take(self, _message: Message) -> bool:
        return False

    def speaks(self, _rank: int) -> bool:
        return True

    def led_by(self, _rank: object) -> str | None:
        return None

    def exited(self, rank: int) -> None:
        pass

    def close(self) -> None:
        pass

    def record_ends(self) -> None:
        pass


class RoleProgress(NoRoles):
    """All but ``record_ends`` belong to the loop's thread; what they write and read is on a thread of its own.

    ``on_restart`` gets the ranks of an instance that was started again; ``on_leader_left`` is called when rank 0, whose
    steps show that the job makes progress, has exited.
    """

    def __init__(
        self,
        db: Database,
        work: WorkOrder,
        *,
        send: Callable[[Message], None],
        note: Callable[[Note], None],
        on_restart: Callable[[range], None],
        on_leader_left: Callable[[], None],
        grace_seconds: float,
    ) -> None:
        self._db = db
        self._work = work
        self._send = send
        self._note = note
        self._on_restart = on_restart
        self._on_leader_left = on_leader_left
        self._grace_seconds = grace_seconds
        self._ranks = {
            (each.role, each.index): range(each.first_rank, each.first_rank + each.ranks) for each in work.instances
        }
        self._leaders = {
            each.first_rank: each.role for each in work.instances if each.index == 0 and each.first_rank > 0
        }
        self._mine = PartProgress()
        self._changed = threading.Condition()
        self._closed = False
        self._exit_codes: dict[tuple[str, int], int] = {}
        self._usage = InstanceUsage(
            {rank: key for key, ranks in self._ranks.items() for rank in ranks}, self._record_usage
        )
        self._writing = threading.Lock()  # of the row of the attempt: what was used must not follow its end
        self._are_ends_recorded = False

    def begin(self, root_pid: int) -> None:
        """The ranks were launched below this process; they may wait for those of other nodes."""
        self._usage.start(root_pid)
        if self._work.is_gang:
            threading.Thread(target=self._watch, name="roles", daemon=True).start()

    def speaks(self, rank: int) -> bool:
        """Whether it says by its messages that the script reports through the hooks."""
        return rank == 0

    def led_by(self, rank: object) -> str | None:
        """The role of which it is the first rank; None for the others, for rank 0, which speaks for the job, and for
        anything else that a message may have in place of a rank.
        """
        return self._leaders.get(rank) if isinstance(rank, int) else None

    def exited(self, rank: int) -> None:
        if rank == 0:
            self._on_leader_left()

    def take(self, message: Message) -> bool:
        """Whether it was about roles. Raises ValueError for what the agent never says."""
        report = parse(message)
        if report is not None:
            self._apply(report)
        return report is not None

    def close(self) -> None:
        """Stop waiting for the other parts."""
        self._usage.stop()
        with self._changed:
            self._closed = True
            self._changed.notify()

    def record_ends(self) -> None:
        """Write how the instances of this node have ended, at their end: others may wait for it. Raises LeaseLost."""
        work, used = self._work, self._usage.totals()
        codes = {key: {"exit_code": code} for key, code in self._exit_codes.items()}
        ends = {key: {**codes.get(key, {}), **used.get(key, {})} for key in self._ranks}
        while True:
            try:
                if work.is_gang:
                    role_rendezvous.report_progress(self._db, work, self._mine)
                with self._writing:
                    self._are_ends_recorded = True
                    work_instances.record(self._db, work.job_id, work.attempt, work.fence, ends)
            except LeaseLost:
                raise
            except Exception as error:
                if not is_transient(error):
                    log.exception("the ends of the instances are not recorded")
                    return
                log.warning("the ends of the instances could not be written yet: %s", error)
                time.sleep(RETRY_SECONDS)
            else:
                return

    def _record_usage(self, used: Mapping[Key, Mapping[str, float]]) -> None:
        """Write what the instances of this node have used by now, on the thread that observes them."""
        work = self._work
        with self._writing:
            if self._are_ends_recorded:
                return
            try:
                work_instances.record(self._db, work.job_id, work.attempt, work.fence, used)
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("what the instances have used could not be written: %s", error)  # the next has it, too

    def _apply(self, report: RoleReport) -> None:
        if isinstance(report, TaskRestarted):
            self._restarted(report)
        elif isinstance(report, InstanceEnded):
            self._exit_codes[report.role, report.index] = report.exit_code
        elif isinstance(report, InstanceStarted):
            self._advance(replace(self._mine, started=self._mine.started | {(report.role, report.index)}))
        elif isinstance(report, WorkEnded):
            self._advance(replace(self._mine, work_ended=True))

    def _restarted(self, report: TaskRestarted) -> None:
        name, key = f"{report.role} {report.index}", (report.role, report.index)
        message = (
            f"{name} starts again alone, because its rank {report.rank} ended with exit code {report.exit_code} "
            f"(restart {report.restarts} of {self._work.document.training_config.max_retries})"
        )
        data = {
            "attempt": self._work.attempt,
            "role": report.role,
            "index": report.index,
            "rank": report.rank,
            "exit_code": report.exit_code,
            "restarts": report.restarts,
        }
        self._note(Note(kind=EventType.TASK_RESTARTED, message=message, data=data))
        self._on_restart(self._ranks.get(key, range(0)))

    def _advance(self, now: PartProgress) -> None:
        with self._changed:
            self._mine = now
            self._changed.notify()
        if now.work_ended and not self._work.is_gang:
            self._release()

    def _release(self) -> None:
        self._send({"type": RELEASE, "grace_seconds": self._grace_seconds})

    def _watch(self) -> None:
        written, known = PartProgress(), set[str]()
        while not self._closed:
            with self._changed:
                mine = self._mine
            try:
                if mine != written:
                    role_rendezvous.report_progress(self._db, self._work, mine)
                    written = mine
                parts = role_rendezvous.progress_of_parts(self._db, self._work)
            except LeaseLost:
                return  # the renewal finds out, too, and ends everything
            except Exception as error:
                if not is_transient(error):
                    log.exception("the progress of roles is not followed any more")
                    return
                time.sleep(RETRY_SECONDS)
                continue
            started = role_rendezvous.started_roles(self._work, parts)
            if started - known:
                known |= started
                self._send({"type": ROLES_STARTED, "roles": sorted(known)})
            if all(part.work_ended for part in parts):
                self._release()
                return
            with self._changed:
                if self._mine == written and not self._closed:
                    self._changed.wait(LOOK_SECONDS if self._waits(known) else None)

    def _waits(self, started: set[str]) -> bool:
        """Whether something here waits for other nodes: an instance, a sidecar, or the attempt as a whole."""
        here = [role for role in self._work.document.tasks if role.role in {each.role for each in self._work.instances}]
        return self._work.part == 0 or any(role.is_sidecar or not started.issuperset(role.depends_on) for role in here)
