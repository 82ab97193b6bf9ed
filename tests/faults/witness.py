"""Outside of the system: hears of every step that any trainer finishes, whatever the system believes."""

import socket
import threading
from dataclasses import dataclass

RECEIVE_BYTES = 8 << 20
POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One datagram of ``tests/scripts/witnessed.py``; ``what`` is start, step, saved, stop or end."""

    job_id: str
    attempt: int
    rank: int
    pid: int  # as the trainer itself sees it
    namespace: int  # of that pid
    at_ns: int  # CLOCK_BOOTTIME
    what: str
    step: int


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What one process trained: the steps it finished, and when it was seen first and last."""

    job_id: str
    attempt: int
    rank: int
    start_step: int
    last_step: int
    first_ns: int
    last_ns: int
    steps_ns: tuple[tuple[int, int], ...]  # (step, when it was finished)

    def steps_until(self, at_ns: int) -> int:
        """The last step that was finished by then."""
        return max((step for step, when in self.steps_ns if when <= at_ns), default=self.start_step)


class Witness:
    """A UDP socket on the loopback interface with a thread that reads it; ``close`` ends both."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(POLL_SECONDS)
        self._lock = threading.Lock()
        self._seen: list[Sighting] = []
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="witness", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def all(self) -> list[Sighting]:
        with self._lock:
            return list(self._seen)

    def of(self, job_id: str) -> list[Sighting]:
        return [sighting for sighting in self.all() if sighting.job_id == job_id]

    def last_step(self, job_id: str) -> int:
        """Of the newest attempt; 0 before the first."""
        stretches = stretches_of(self.of(job_id))
        return stretches[-1].last_step if stretches else 0

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                datagram = self._socket.recv(4096)
            except TimeoutError:
                continue
            job_id, attempt, rank, pid, namespace, at_ns, what, step = datagram.decode().split()
            sighting = Sighting(
                job_id=job_id,
                attempt=int(attempt),
                rank=int(rank),
                pid=int(pid),
                namespace=int(namespace),
                at_ns=int(at_ns),
                what=what,
                step=int(step),
            )
            with self._lock:
                self._seen.append(sighting)


def stretches_of(sightings: list[Sighting]) -> list[Stretch]:
    """One for each process that was seen, in the order of their beginnings."""
    processes: dict[tuple[str, int, int, int, int], list[Sighting]] = {}
    for s in sightings:
        processes.setdefault((s.job_id, s.attempt, s.rank, s.pid, s.namespace), []).append(s)
    found = []
    for (job_id, attempt, rank, _, _), mine in processes.items():
        mine.sort(key=lambda s: s.at_ns)
        steps = tuple((s.step, s.at_ns) for s in mine if s.what == "step")
        start = mine[0].step if mine[0].what == "start" else mine[0].step - 1
        found.append(
            Stretch(
                job_id=job_id,
                attempt=attempt,
                rank=rank,
                start_step=start,
                last_step=steps[-1][0] if steps else start,
                first_ns=mine[0].at_ns,
                last_ns=mine[-1].at_ns,
                steps_ns=steps,
            )
        )
    return sorted(found, key=lambda stretch: stretch.first_ns)
