"""Jobs as Run:ai's clients name and list them."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.compat.every_job import every_job
from app.compat.ids import job_id_of
from app.compat.runai.from_native import STATES_OF_PHASES, is_deleted, is_distributed, workload_of
from app.compat.runai.queries import Row, chosen, conditions, narrowed, native_order, ordered
from app.compat.runai.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.job_state import TERMINAL, JobState
from app.http.context import caller, plane
from app.models.base import utc_now
from app.services import jobs
from app.services.job_details import JobDetails, details


def find(session: Session, workload: str, *, distributed: bool | None = None) -> JobDetails:
    """Raises NotFound for what is not there, not the caller's, deleted, or of the other kind where one is wanted."""
    found = details(session, jobs.find(session, caller(), job_id_of(workload)))
    if is_deleted(found, utc_now()) or distributed not in (None, is_distributed(found)):
        raise NotFound("Resource id not found.")
    return found


def rows(session: Session, query: Mapping[str, Any]) -> Iterable[Row]:
    """Those of the caller's jobs that are asked for, in the order that is, of up to so many. Raises InvalidRequest."""
    asked = conditions(query["filterBy"])
    if query["deleted"]:  # of which nothing is told
        return ()
    filters, now = narrowed(asked, query["search"], STATES_OF_PHASES), utc_now()
    found = every_job(session, filters, native_order(query) or "-created_at")
    told = (workload_of(each) for each in found if not is_deleted(each, now))
    return ordered(chosen(told, asked, query["search"]), query)


def delete(workload: str, *, distributed: bool | None = None) -> None:
    jobs.withdraw(plane(), caller(), _found(workload, distributed).job.id, dialect=DIALECT)


def suspend(workload: str, *, distributed: bool | None = None) -> None:
    # Save if it can, else stop: a client of Run:ai has no way to say which.
    jobs.pause(plane(), caller(), _found(workload, distributed).job.id, force=True)


def resume(workload: str, *, distributed: bool | None = None) -> None:
    """Nothing to do for what runs, or will: Run:ai takes that for granted."""
    found = _found(workload, distributed)
    if found.job.state in TERMINAL or found.job.state is JobState.PAUSED or found.requested is not None:
        jobs.resume(plane(), caller(), found.job.id)


def _found(workload: str, distributed: bool | None) -> JobDetails:  # noqa: FBT001 – as the caller was told
    with plane().db.read() as session:
        return find(session, workload, distributed=distributed)
