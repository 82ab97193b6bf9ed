"""Which coordinators and nodes live, judged by their counters while we watch, and how far their clocks are off."""

import time
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from app.database.engine import Database
from app.models import Node, ProcessBeat
from app.models.base import utc_now

COORDINATOR, NODE = "coordinator", "node"
# Coordinators and nodes beat every two seconds: shorter looks would miss some that live.
LEAST_SECONDS = 2.5
LOOK_SECONDS = 0.1

_Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """``skew_seconds``: how far its clock was ahead of ours when it beat; None for one that did not."""

    kind: str
    name: str
    state: str
    sandbox: str
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


def watched(db: Database, patience_seconds: float) -> list[Pulse]:
    """Everybody that the database knows; returns early once all that should live have been seen."""
    first, skews = _look(db), dict[_Key, float]()
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience_seconds:
        if waited > LEAST_SECONDS and _is_enough(first, skews):
            break
        time.sleep(LOOK_SECONDS)
        for key, seen in _look(db).items():
            if key not in skews and (key not in first or first[key].counter != seen.counter):
                skews[key] = (seen.at - utc_now()).total_seconds()
    return [
        Pulse(kind=key[0], name=key[1], state=seen.state, sandbox=seen.sandbox, skew_seconds=skews.get(key))
        for key, seen in sorted(_look(db).items())
    ]


def _is_enough(first: dict[_Key, _Seen], skews: dict[_Key, float]) -> bool:
    """Rows of coordinators that ended stay for a day: one that lives is enough. Nodes that are lost are known to be."""
    nodes = {key for key, seen in first.items() if key[0] == NODE and seen.state != "lost"}
    return nodes <= skews.keys() and any(kind == COORDINATOR for kind, _ in skews)


def _look(db: Database) -> dict[_Key, _Seen]:
    with db.read() as session:
        beats = session.execute(
            select(ProcessBeat.name, ProcessBeat.counter, ProcessBeat.last_seen_at).where(
                ProcessBeat.kind == COORDINATOR
            )
        )
        found = {(COORDINATOR, row.name): _Seen(row.counter, row.last_seen_at, "") for row in beats}
        rows = session.execute(select(Node.name, Node.heartbeat, Node.last_seen_at, Node.state, Node.sandbox))
        found |= {(NODE, row.name): _Seen(row.heartbeat, row.last_seen_at, row.state, row.sandbox) for row in rows}
    return found
