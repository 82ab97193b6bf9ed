"""Liveness of coordinators and nodes, by observing their heartbeat counters, and their clock skew."""

import time
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from app.database.engine import Database
from app.models import Node, ProcessBeat
from app.models.base import utc_now

COORDINATOR, NODE = "coordinator", "node"
# Heartbeats are due every two seconds: a shorter observation would miss live processes.
MIN_SECONDS = 2.5
POLL_SECONDS = 0.1

_Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """``skew_seconds``: how far its clock is ahead of this one; None if no heartbeat was observed."""

    kind: str
    name: str
    state: str
    sandbox: str
    capabilities: frozenset[str]
    skew_seconds: float | None

    @property
    def is_alive(self) -> bool:
        return self.skew_seconds is not None


@dataclass(frozen=True)
class _Seen:
    counter: int
    at: datetime
    state: str
    sandbox: str = ""
    capabilities: frozenset[str] = frozenset()


def observe(db: Database, patience_seconds: float) -> list[Pulse]:
    """The liveness of all registered processes; returns early once all expected ones have been observed."""
    first, skews = _read(db), dict[_Key, float]()
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience_seconds:
        if waited > MIN_SECONDS and _is_enough(first, skews):
            break
        time.sleep(POLL_SECONDS)
        for key, seen in _read(db).items():
            if key not in skews and (key not in first or first[key].counter != seen.counter):
                skews[key] = (seen.at - utc_now()).total_seconds()
    return [
        Pulse(
            kind=key[0],
            name=key[1],
            state=seen.state,
            sandbox=seen.sandbox,
            capabilities=seen.capabilities,
            skew_seconds=skews.get(key),
        )
        for key, seen in sorted(_read(db).items())
    ]


def _is_enough(first: dict[_Key, _Seen], skews: dict[_Key, float]) -> bool:
    """Whether a coordinator and all nodes were observed; rows of ended coordinators and of lost nodes are ignored."""
    nodes = {key for key, seen in first.items() if key[0] == NODE and seen.state != "lost"}
    return nodes <= skews.keys() and any(kind == COORDINATOR for kind, _ in skews)


def _read(db: Database) -> dict[_Key, _Seen]:
    with db.read() as session:
        beats = session.execute(
            select(ProcessBeat.name, ProcessBeat.counter, ProcessBeat.last_seen_at).where(
                ProcessBeat.kind == COORDINATOR
            )
        )
        found = {(COORDINATOR, row.name): _Seen(row.counter, row.last_seen_at, "") for row in beats}
        rows = session.execute(
            select(Node.name, Node.heartbeat, Node.last_seen_at, Node.state, Node.sandbox, Node.capabilities)
        )
        found |= {
            (NODE, row.name): _Seen(
                row.heartbeat, row.last_seen_at, row.state, row.sandbox, frozenset(row.capabilities)
            )
            for row in rows
        }
    return found
