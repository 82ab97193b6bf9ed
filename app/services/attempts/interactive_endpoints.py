"""Where the sandbox of a running attempt is reached: written by the supervisors of its parts, read for sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.states import HELD
from app.models import Attempt, InteractiveEndpoint, Job
from app.models.base import utc_now
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions


@dataclass(frozen=True, kw_only=True)
class SandboxEndpoint:
    """The relay to a part's session server; ``port`` 0: it could not be opened, for ``message``."""

    job_id: str
    attempt: int
    fence: int
    part: int
    first_rank: int
    ranks: int
    address: str
    port: int
    message: str


def local_socket(data_dir: Path, job_id: str, attempt: int, part: int) -> Path:
    """Where the relay of a part listens for gateways on the same machine that have the same data directory,
    ``data_dir`` without links.

    It lies in the directory of the attempt's supervisor, which is closed to its ranks and removed with the attempt.
    """
    name = f"{attempt}-{part}" if part else str(attempt)
    return data_dir / "run" / "jobs" / job_id / f"{name}.taken" / "relay.sock"


def record(db: Database, work: WorkOrder, *, address: str = "", port: int = 0, message: str = "") -> None:
    """Record where this part is reached, or why not. Raises LeaseLost when the attempt is no longer the job's."""
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        if job.fence != work.fence or job.state not in HELD:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} has been ended already")
        row = session.get(InteractiveEndpoint, (work.job_id, work.part), populate_existing=True)
        if row is None:
            row = InteractiveEndpoint(job_id=work.job_id, part=work.part)
            session.add(row)
        row.attempt, row.fence, row.recorded_at = work.attempt, work.fence, utc_now()
        row.first_rank, row.ranks = work.part * work.ranks_per_node, work.ranks_per_node
        row.address, row.port, row.message = address, port, message


def of(session: Session, job_id: str, *, rank: int = 0) -> SandboxEndpoint | None:
    """The endpoint of the part that has this rank; None until the running attempt has recorded one."""
    query = (
        select(InteractiveEndpoint, Attempt.instances)
        .join(Job, Job.id == InteractiveEndpoint.job_id)
        .outerjoin(Attempt, (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt))
        .where(InteractiveEndpoint.job_id == job_id, InteractiveEndpoint.fence == Job.fence, Job.status.in_(HELD))
    )
    row = next((row for row, instances in session.execute(query) if _has(row, instances, rank)), None)
    if row is None:
        return None
    return SandboxEndpoint(
        job_id=row.job_id,
        attempt=row.attempt,
        fence=row.fence,
        part=row.part,
        first_rank=row.first_rank,
        ranks=row.ranks,
        address=row.address,
        port=row.port,
        message=row.message,
    )


def _has(row: InteractiveEndpoint, instances: Sequence[Mapping[str, Any]] | None, rank: int) -> bool:
    """Ranks of a node follow each other, unless the job has roles, of which a node may have instances of several."""
    if not instances:
        return row.first_rank <= rank < row.first_rank + row.ranks
    here = (each for each in instances if each["part"] == row.part)
    return any(each["first_rank"] <= rank < each["first_rank"] + each["ranks"] for each in here)
