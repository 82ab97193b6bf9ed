"""Rendezvous of a gang's supervisors through the attempt's row.

Each supervisor reports when it is prepared; then the supervisor of the first node publishes the address of rank 0 and
the checkpoint to continue from. So no rank waits for one on another node that is still fetching a model.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.models import Attempt, Lease
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions


@dataclass(frozen=True, kw_only=True)
class RendezvousAddress:
    """Address of rank 0, and the checkpoint to continue from (None: from the beginning)."""

    address: str
    port: int
    checkpoint_id: str | None


def report_prepared(db: Database, work: WorkOrder) -> bool:
    """Report this part as prepared. Idempotent. Raises LeaseLost when the attempt is no longer current."""
    change(db, work, lambda state: {**state, "prepared": sorted({*state.get("prepared", ()), work.part})})
    return True


def are_others_prepared(db: Database, work: WorkOrder) -> bool:
    """Whether all other parts of the attempt are prepared."""
    return set(range(len(work.node_names))) - {work.part} <= set(read(db, work).get("prepared", ()))


def publish_address(db: Database, work: WorkOrder, place: RendezvousAddress) -> RendezvousAddress:
    """Publish the address. Idempotent. Raises LeaseLost when the attempt is no longer current."""
    change(db, work, lambda state: {**state, "place": asdict(place)})
    return place


def place(db: Database, work: WorkOrder) -> RendezvousAddress | None:
    """Read the published address; None until the first node has published it."""
    stored = read(db, work).get("place")
    return RendezvousAddress(**stored) if stored is not None else None


def read(db: Database, work: WorkOrder) -> dict[str, Any]:
    """What the parts have written so far."""
    with db.read() as session:
        return session.get_one(Attempt, (work.job_id, work.attempt)).rendezvous or {}


def change(db: Database, work: WorkOrder, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Write what a part has to say. Raises LeaseLost when the attempt or the part's lease is no longer current."""
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)  # serializes writers, so that no update is lost
        lease = session.get(Lease, work.lease_id, populate_existing=True)
        if job.fence != work.fence or lease is None or lease.released_at is not None:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} has been ended already")
        attempt = session.get_one(Attempt, (work.job_id, work.attempt))
        attempt.rendezvous = changed(attempt.rendezvous or {})
