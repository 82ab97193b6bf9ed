"""Manages the attempts of this node: starts, adopts, nudges and releases supervisors, and cleans up after them."""

import logging
import os
import signal
import threading
import time

from app.database.change_counter import ChangeCounter
from app.database.engine import Database
from app.domain.lifecycle.retry_policy import Backoff
from app.host import processes
from app.host.processes import ProcessIdentity
from app.services.attempts import leases
from app.services.attempts.leases import LiveLease
from app.services.nodes import stuck_devices
from app.services.scheduling import planner
from config.settings import Settings
from workers.node.spawn_supervisor import is_starting, reap_supervisors, start_attempts
from workers.run_dir import cleanup
from workers.run_dir.layout import RunDirectory, run_directories, run_directory
from workers.run_dir.process_registry import read_registry

log = logging.getLogger(__name__)

CLEAN_SECONDS = 10.0
# Without a change in the database its leases are read again after this time all the same.
FULL_POLL_SECONDS = 30.0
# A process that is not found may not have started yet.
POLLS_BEFORE_DEATH = 2


class AttemptManager:
    """Call ``poll`` from one thread only; ``nudge`` may be called from any thread and returns at once."""

    def __init__(self, settings: Settings, db: Database, node: str) -> None:
        self._settings = settings
        self._db = db
        self._node = node
        self._nudged: set[str] = set()
        self._lock = threading.Lock()
        self._missing: dict[str, int] = {}  # lease → polls without a supervisor
        self._adopted: set[str] = set()
        self._cleaned_at = float("-inf")
        self._left: set[tuple[str, int]] = set()  # attempts with unkillable processes
        self._cleaning = threading.Lock()
        self._changes = ChangeCounter(db)
        self._live: list[LiveLease] = []  # claimed leases of this node, as last read
        self._asked_at = float("-inf")

    def nudge(self, job_id: str) -> None:
        """Record that a job has new control requests; the next poll signals its supervisor."""
        with self._lock:
            self._nudged.add(job_id)

    def poll(self) -> None:
        """One pass over all attempts. Database errors propagate."""
        reap_supervisors()
        # First, because leftovers of earlier attempts slow down the attempts started below.
        if time.monotonic() - self._cleaned_at > CLEAN_SECONDS:
            self.clean()
        if self._has_to_ask(time.monotonic()):
            self._ask()
        self._signal_nudged(self._live)
        for lease in self._live:
            self._check(lease)
        found = {lease.lease_id for lease in self._live}
        self._missing = {key: n for key, n in self._missing.items() if key in found}

    def _has_to_ask(self, now: float) -> bool:
        """After a change; for a nudge, which may be faster than the change; and before a supervisor counts as dead."""
        if self._changes.has_changed():
            self._asked_at = float("-inf")  # until it succeeds
        return bool(self._nudged or self._missing) or now - self._asked_at > FULL_POLL_SECONDS

    def _ask(self) -> None:
        asked_at = time.monotonic()
        self._start_dispatched()
        self._live = [lease for lease in leases.live(self._db, node=self._node) if lease.counter > 0]
        self._asked_at = asked_at

    def clean(self) -> None:
        """Kill leftover processes of finished attempts whose supervisor could not do it. Safe from any thread."""
        with self._cleaning:
            left = run_directories(self._settings.data.dir)
            # Queried after listing the directories, so that an attempt that starts meanwhile is not included.
            live = {(lease.job_id, lease.attempt) for lease in leases.live(self._db)} if left else set()
            for job_id, attempt, directory in left:
                key = (job_id, attempt)
                if self._settings.node.keep_runs and directory.gone.exists():
                    continue
                if key not in live and not processes.supervisors_of(job_id, attempt):
                    self._clean(directory, key)
            self._return_devices({(job_id, attempt) for job_id, attempt, _ in left})
            self._cleaned_at = time.monotonic()

    def _clean(self, directory: RunDirectory, key: tuple[str, int]) -> None:
        roll = read_registry(directory, *key)
        if directory.left.exists() and roll is not None and processes.is_hidden(roll.held.place):
            return  # belongs to another container on this machine; its processes are not visible here
        if not cleanup.end(self._db, directory, *key, node=self._node):
            if key not in self._left:
                self._left.add(key)
                log.error("job %s: a process of attempt %s can't be killed; its devices are out of service", *key)
            return
        self._left.discard(key)
        if not self._settings.node.keep_runs:
            directory.remove()

    def _return_devices(self, there: set[tuple[str, int]]) -> None:
        """Return stuck devices of attempts whose directory was lost, once their processes are gone."""
        here = processes.place()
        for row in stuck_devices.of_node(self._db, self._node):
            if (row.job_id, row.attempt) in there or processes.is_hidden(row.place):
                continue
            if row.place == here:
                is_gone = not processes.processes_of_attempt(row.job_id, row.attempt, node=self._node)
            else:
                # From an earlier boot. If it is visible, two machines share this node's name by mistake.
                is_gone = stuck_devices.unseen(self._db, row)
            if is_gone:
                stuck_devices.put_back(self._db, self._node, row.job_id, row.attempt)

    def _start_dispatched(self) -> None:
        """Start the attempts dispatched to this node, whether or not their message arrived."""
        start_attempts(self._settings, self._db, planner.dispatched_to(self._db, self._node), node=self._node)

    def _signal_nudged(self, live: list[LiveLease]) -> None:
        with self._lock:
            nudged, self._nudged = self._nudged, set()
        for lease in live:
            identity = _identity(lease)
            if lease.job_id in nudged and identity is not None and identity.is_alive():
                os.kill(identity.pid, signal.SIGUSR1)

    def _check(self, lease: LiveLease) -> None:
        if is_starting(lease.job_id, lease.attempt) or self._is_alive(lease):
            self._missing.pop(lease.lease_id, None)
            self._adopt(lease)
            return
        if lease.boot_id != processes.place():
            return  # another boot or container: nothing can be proved from here, so the lease must expire
        missed = self._missing.get(lease.lease_id, 0) + 1
        self._missing[lease.lease_id] = missed
        if missed >= POLLS_BEFORE_DEATH:
            self._release(lease)

    def _is_alive(self, lease: LiveLease) -> bool:
        identity = _identity(lease)
        if identity is not None:
            return identity.is_alive()
        return bool(processes.supervisors_of(lease.job_id, lease.attempt))  # it has not registered yet

    def _adopt(self, lease: LiveLease) -> None:
        """Log an adopted supervisor once; it renews its own lease and needs nothing else."""
        if lease.lease_id not in self._adopted and lease.supervisor_pid is not None:
            self._adopted.add(lease.lease_id)
            log.info("job %s attempt %s runs under supervisor %s", lease.job_id, lease.attempt, lease.supervisor_pid)

    def _release(self, lease: LiveLease) -> None:
        """The supervisor is provably dead: release the lease now instead of waiting for it to expire."""
        key, actor = (lease.job_id, lease.attempt), f"node@{self._node}"
        run = run_directory(self._settings.data.dir, *key, lease.part)
        is_left = not cleanup.end(self._db, run, *key, node=self._node)
        scheduler = self._settings.scheduler
        backoff = Backoff(base_seconds=scheduler.retry_base_seconds, max_seconds=scheduler.retry_max_seconds)
        taken = leases.revoke(
            self._db,
            lease,
            cause="SUPERVISOR_LOST",
            message=f"the supervisor of attempt {lease.attempt} on {self._node} died",
            actor=actor,
            backoff=backoff,
            left_behind=is_left,
        )
        if taken:
            log.warning("job %s: the supervisor of attempt %s died; lease released", lease.job_id, lease.attempt)


def _identity(lease: LiveLease) -> ProcessIdentity | None:
    if lease.supervisor_pid is None or lease.supervisor_started is None or lease.boot_id is None:
        return None
    return ProcessIdentity(lease.supervisor_pid, lease.supervisor_started, lease.boot_id)
