"""What each instance of a role on this node has used: processor time, and the most memory, of all its processes."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import psutil

from app.host import processes
from workers.supervisor.ranks.usage import MEBIBYTE, consumption_of

log = logging.getLogger(__name__)

FIRST_SECONDS, SAMPLE_SECONDS = 0.5, 5.0
TELL_SECONDS = 10.0  # for people who look on: each time is a transaction
Key = tuple[str, int]  # role, index
Totals = dict[Key, dict[str, float]]


class InstanceUsage:
    """Samples on a thread of its own. ``instances``: by rank, the instance that it belongs to. ``tell`` gets the totals
    now and then, on that thread, while they change.
    """

    def __init__(self, instances: Mapping[int, Key], tell: Callable[[Totals], None]) -> None:
        self._instances = instances
        self._tell = tell
        self._told: tuple[float, Totals] | None = None  # when, and what
        self._seconds: dict[tuple[Key, int], float] = {}  # by instance and process: a rank may be started again
        self._peak_bytes: dict[Key, int] = {}
        self._stopped = threading.Event()

    def start(self, root_pid: int) -> None:
        """Watch the ranks below this process until stopped."""
        threading.Thread(target=self._watch, args=(root_pid,), name="instance usage", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def totals(self) -> Totals:
        """What was seen until now, by instance; the last moments before a process ends are not."""
        seconds: dict[Key, float] = {}
        for (key, _), used in list(self._seconds.items()):
            seconds[key] = seconds.get(key, 0.0) + used
        return {
            key: {"cpu_seconds": round(used, 2), "peak_memory_mb": round(self._peak_bytes[key] / MEBIBYTE, 1)}
            for key, used in seconds.items()
        }

    def sample(self, root_pid: int) -> None:
        """Look once."""
        memory: dict[Key, int] = {}
        ranks = processes.ranks_below(root_pid)
        trees = processes.trees_of(ranks.values())
        for rank, pid in ranks.items():
            key, used = self._instances.get(rank), consumption_of(_found(trees[pid]))
            if key is None or used is None:
                continue
            memory[key] = memory.get(key, 0) + used.memory_bytes
            self._peak_bytes.setdefault(key, 0)
            self._seconds[key, pid] = max(used.cpu_seconds, self._seconds.get((key, pid), 0.0))
        for key, found in memory.items():
            self._peak_bytes[key] = max(found, self._peak_bytes[key])

    def _watch(self, root_pid: int) -> None:
        wait = FIRST_SECONDS
        try:
            while not self._stopped.wait(wait):
                self.sample(root_pid)
                self._tell_if_due()
                wait = SAMPLE_SECONDS
        except Exception:
            log.exception("the use of the instances is not observed any more")

    def _tell_if_due(self) -> None:
        now, totals = time.monotonic(), self.totals()
        if not totals:
            return
        if self._told is not None and (totals == self._told[1] or now < self._told[0] + TELL_SECONDS):
            return
        self._told = now, totals
        self._tell(totals)


def _found(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)
