"""Jobs as workloads: found by UUID, listed, and controlled."""

from collections.abc import Iterable, Mapping
from typing import Any

from app.compat.every_job import every_job
from app.compat.ids import job_id_of
from app.compat.runai.from_native import STATES_OF_PHASES, is_deleted, is_distributed, training_of, workload_of
from app.compat.runai.owners import Owners
from app.compat.runai.queries import FilterCondition, Row, chosen, conditions, narrowed, native_order, ordered
from app.compat.runai.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.lifecycle.states import TERMINAL, JobState
from app.host.clock import utc_now
from app.http.context import caller, plane
from app.services.access import api_keys, projects
from app.services.jobs import dialect_notes, lookup
from app.services.jobs.control import commands
from app.services.jobs.details import JobDetails, details
from app.services.rows import Session


def find(session: Session, workload: str, *, distributed: bool | None = None) -> JobDetails:
    """Raises NotFound for a job that does not exist, is deleted, of the other kind, or not visible to the caller."""
    found = details(session, lookup.find(session, caller(), job_id_of(workload)))
    if is_deleted(found, utc_now()) or distributed not in (None, is_distributed(found)):
        raise NotFound("Resource id not found.")
    return found


def training(session: Session, workload: str, *, distributed: bool) -> dict[str, Any]:
    """The training as a document. Raises NotFound."""
    found = find(session, workload, distributed=distributed)
    return training_of(found, Owners(session).of(found.job))


def rows(session: Session, query: Mapping[str, Any]) -> Iterable[Row]:
    """The caller's workloads that pass the query, in its order, among ``MAX_JOBS`` jobs. Raises InvalidRequest."""
    asked = [_by_name(session, each) for each in conditions(query["filterBy"])]
    if query["deleted"]:  # deleted workloads are not listed
        return ()
    filters, now = narrowed(asked, query["search"], STATES_OF_PHASES), utc_now()
    if authors := [each.value for each in asked if (each.field, each.how) == ("submittedBy", "==")]:
        filters["created_by_one_of"] = api_keys.ids_of(session, authors[0])
    found, owners = every_job(session, filters, native_order(query) or "-created_at"), Owners(session)
    workloads = (workload_of(each, owners.of(each.job)) for each in found if not is_deleted(each, now))
    return ordered(chosen(workloads, asked, query["search"]), query)


def _by_name(session: Session, condition: FilterCondition) -> FilterCondition:
    """The condition with the name of a project instead of its number, which the database can filter by."""
    if condition.field != "projectId" or condition.how not in ("==", "!="):
        return condition
    try:
        name = projects.referred(session, caller(), condition.value).name
    except NotFound:
        return condition
    return condition._replace(field="projectName", value=name)


def delete(workload: str, *, distributed: bool | None = None) -> None:
    dialect_notes.withdraw(plane(), caller(), _found(workload, distributed).job.id, dialect=DIALECT)


def suspend(workload: str, *, distributed: bool | None = None) -> None:
    # Save a checkpoint if possible, else stop without one: Run:ai's clients can't choose.
    commands.pause(plane(), caller(), _found(workload, distributed).job.id, force=True)


def resume(workload: str, *, distributed: bool | None = None) -> None:
    """Has no effect on a workload that is running or queued, as in Run:ai."""
    found = _found(workload, distributed)
    if found.job.state in TERMINAL or found.job.state is JobState.PAUSED or found.requested is not None:
        commands.resume(plane(), caller(), found.job.id)


def _found(workload: str, distributed: bool | None) -> JobDetails:  # noqa: FBT001
    with plane().db.read() as session:
        return find(session, workload, distributed=distributed)
