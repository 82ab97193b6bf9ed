"""Where the ranks of an attempt on several nodes meet, settled between its supervisors through the attempt's row.

Each says when it is prepared; when all have, the first node's says where, and from which checkpoint all go on. So no
rank waits for one on another node that is still fetching a model.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.models import Attempt
from app.services.attempts.work_orders import Work
from app.services.lifecycle import transitions


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where rank 0 listens, and the checkpoint that all go on from (None: from the beginning)."""

    address: str
    port: int
    checkpoint_id: str | None


def say_prepared(db: Database, work: Work) -> bool:
    """Safe to say again. Raises LeaseLost when the attempt is no longer the job's."""
    _write(db, work, lambda said: {**said, "prepared": sorted({*said.get("prepared", ()), work.part})})
    return True


def are_others_prepared(db: Database, work: Work) -> bool:
    """Whether every other node of the attempt is."""
    return set(range(len(work.node_names))) - {work.part} <= set(_read(db, work).get("prepared", ()))


def say_place(db: Database, work: Work, place: Place) -> Place:
    """The same place may be said again. Raises LeaseLost when the attempt is no longer the job's."""
    _write(db, work, lambda said: {**said, "place": asdict(place)})
    return place


def place(db: Database, work: Work) -> Place | None:
    """None as long as the first node has not said it."""
    said = _read(db, work).get("place")
    return Place(**said) if said is not None else None


def _read(db: Database, work: Work) -> dict[str, Any]:
    with db.read() as session:
        return session.get_one(Attempt, (work.job_id, work.attempt)).rendezvous or {}


def _write(db: Database, work: Work, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)  # one after the other: no word is lost
        if job.fence != work.fence:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} was ended by somebody else")
        attempt = session.get_one(Attempt, (work.job_id, work.attempt))
        attempt.rendezvous = change(attempt.rendezvous or {})
