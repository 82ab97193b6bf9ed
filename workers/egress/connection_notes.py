"""What a job's history says of its connections: the first to each service at once, then sums at growing intervals."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from workers.egress.gate import EgressConnection

FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0  # between two notes about a service
MOST_SERVICES = 100  # others are summed up
OTHERS = "other hosts"


@dataclass(frozen=True)
class ConnectionNote:
    """Connections to one service since the note before; ``refused`` says why they were not made."""

    host: str
    port: int
    refused: str
    connections: int
    sent_bytes: int
    received_bytes: int

    def to_json(self) -> dict[str, str | int]:
        return asdict(self)


@dataclass
class _Sum:
    connections: int = 0
    sent: int = 0
    received: int = 0
    due: float = 0.0
    pause: float = FIRST_SECONDS


class ConnectionNotes:
    """Adds up connections; ``take`` gives the notes that are due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sums: dict[tuple[str, int, str], _Sum] = {}
        self._counted: dict[int, tuple[int, int]] = {}  # of open connections: what was counted of them

    def add(self, connection: EgressConnection, *, has_ended: bool) -> None:
        """A connection that was made, has ended, or was refused; also an open one, to count what has passed."""
        if not connection.host and not connection.refused:
            return  # the job sent nothing
        key = (connection.host, connection.port, connection.refused)
        if key not in self._sums and len(self._sums) >= MOST_SERVICES:
            key = (OTHERS, 0, "refused" if connection.refused else "")
        found = self._sums.setdefault(key, _Sum())
        before = self._counted.pop(id(connection), None)
        if before is None:
            found.connections += 1
        sent, received = before or (0, 0)
        found.sent += connection.sent - sent
        found.received += connection.received - received
        if not has_ended:
            self._counted[id(connection)] = (connection.sent, connection.received)

    def take(self, *, everything: bool = False) -> list[ConnectionNote]:
        now, notes = self._clock(), []
        for (host, port, refused), found in self._sums.items():
            is_new = found.connections or found.sent or found.received
            if not is_new or not (everything or now >= found.due):
                continue
            notes.append(ConnectionNote(host, port, refused, found.connections, found.sent, found.received))
            found.connections = found.sent = found.received = 0
            found.due, found.pause = now + found.pause, min(2 * found.pause, LONGEST_SECONDS)
        return notes
