"""Jobs as Run:ai's clients name and list them."""

from collections.abc import Iterable, Mapping
from typing import Any

from app.compat.every_job import every_job
from app.compat.ids import job_id_of
from app.compat.runai.from_native import STATES_OF_PHASES, is_deleted, is_distributed, training_of, workload_of
from app.compat.runai.owners import Owners
from app.compat.runai.queries import Condition, Row, chosen, conditions, narrowed, native_order, ordered
from app.compat.runai.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.lifecycle.states import TERMINAL, JobState
from app.host.clock import utc_now
from app.http.context import caller, plane
from app.services.access import keys, projects
from app.services.jobs import commands, dialect_notes, lookup
from app.services.jobs.details import JobDetails, details
from app.services.rows import Session


def find(session: Session, workload: str, *, distributed: bool | None = None) -> JobDetails:
    """Raises NotFound for what is not there, not the caller's, deleted, or of the other kind where one is wanted."""
    found = details(session, lookup.find(session, caller(), job_id_of(workload)))
    if is_deleted(found, utc_now()) or distributed not in (None, is_distributed(found)):
        raise NotFound("Resource id not found.")
    return found


def training(session: Session, workload: str, *, distributed: bool) -> dict[str, Any]:
    """As it is told. Raises NotFound."""
    found = find(session, workload, distributed=distributed)
    return training_of(found, Owners(session).of(found.job))


def rows(session: Session, query: Mapping[str, Any]) -> Iterable[Row]:
    """Those of the caller's jobs that are asked for, in the order that is, of up to so many. Raises InvalidRequest."""
    asked = [_by_name(session, each) for each in conditions(query["filterBy"])]
    if query["deleted"]:  # of which nothing is told
        return ()
    filters, now = narrowed(asked, query["search"], STATES_OF_PHASES), utc_now()
    if authors := [each.wanted for each in asked if (each.field, each.how) == ("submittedBy", "==")]:
        filters["created_by_one_of"] = keys.ids_of(session, authors[0])
    found, owners = every_job(session, filters, native_order(query) or "-created_at"), Owners(session)
    told = (workload_of(each, owners.of(each.job)) for each in found if not is_deleted(each, now))
    return ordered(chosen(told, asked, query["search"]), query)


def _by_name(session: Session, asked: Condition) -> Condition:
    """A project that is asked for by number or name, by its name, which the database can be asked for."""
    if asked.field != "projectId" or asked.how not in ("==", "!="):
        return asked
    try:
        return asked._replace(field="projectName", wanted=projects.referred(session, caller(), asked.wanted).name)
    except NotFound:
        return asked


def delete(workload: str, *, distributed: bool | None = None) -> None:
    dialect_notes.withdraw(plane(), caller(), _found(workload, distributed).job.id, dialect=DIALECT)


def suspend(workload: str, *, distributed: bool | None = None) -> None:
    # Save if it can, else stop: a client of Run:ai has no way to say which.
    commands.pause(plane(), caller(), _found(workload, distributed).job.id, force=True)


def resume(workload: str, *, distributed: bool | None = None) -> None:
    """Nothing to do for what runs, or will: Run:ai takes that for granted."""
    found = _found(workload, distributed)
    if found.job.state in TERMINAL or found.job.state is JobState.PAUSED or found.requested is not None:
        commands.resume(plane(), caller(), found.job.id)


def _found(workload: str, distributed: bool | None) -> JobDetails:  # noqa: FBT001 – as the caller was told
    with plane().db.read() as session:
        return find(session, workload, distributed=distributed)
