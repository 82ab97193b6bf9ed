"""Jobs as ModelArts' clients name, search and change them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from app.compat.every_job import MOST_JOBS, every_job
from app.compat.ids import job_id_of
from app.compat.modelarts.from_native import is_deleted, job_of, metadata_of, milliseconds, phase_of
from app.compat.modelarts.to_native import DIALECT, wants_tensorboard
from app.domain.errors import BadSpec, NotFound
from app.http.context import backend, caller, plane
from app.models import Attempt
from app.services import job_history, job_lists, jobs, tensorboards
from app.services.job_details import JobDetails, details


def find(session: Session, training_job_id: str) -> JobDetails:
    """Raises NotFound for what is not there, not of the project, or deleted."""
    missing = f"Training job (ID: {training_job_id[:64]}) not found."
    try:
        found = details(session, jobs.find(session, caller(), job_id_of(training_job_id)))
    except NotFound as error:
        raise NotFound(missing) from error
    if is_deleted(found):
        raise NotFound(missing)
    return found


def shown(session: Session, found: JobDetails, attempts: Sequence[Attempt] | None = None) -> dict[str, Any]:
    if attempts is None:
        attempts = job_history.attempts(session, found.job.id)
    told = job_of(found, attempts, plane().inventory.capacities(session))
    board = tensorboards.address_of(backend().settings, found.job.id) if wants_tensorboard(told["metadata"]) else None
    return told if board is None else told | {"endpoints": {"tensorboard": {"url": board[0], "token": board[1]}}}


def rows(session: Session) -> Iterator[JobDetails]:
    """All jobs of the project, the newest first, up to so many."""
    return (each for each in every_job(session) if not is_deleted(each))


def native_id(training_job_id: str) -> str:
    with plane().db.read() as session:
        return find(session, training_job_id).job.id


def delete(training_job_id: str) -> None:
    jobs.withdraw(plane(), caller(), native_id(training_job_id), dialect=DIALECT)


def searched(session: Session, wanted: Mapping[str, Any]) -> tuple[int, int, Sequence[JobDetails]]:
    """How many jobs there are, up to so many, how many are `wanted`, and a page of those."""
    total = job_lists.count_kept(session, caller(), DIALECT, most=MOST_JOBS)
    begin = wanted["offset"] * wanted["limit"]  # it counts pages
    end, is_newest_first = begin + wanted["limit"], wanted["order"] == "desc"
    if is_newest_first and not any(any(each["value"]) for each in wanted["filters"]):
        return total, total, list(islice(rows(session), begin, end))
    found = chosen(rows(session), wanted["filters"])
    return total, len(found), (found if is_newest_first else found[::-1])[begin:end]


def chosen(found: Iterable[JobDetails], filters: Sequence[Mapping[str, Any]]) -> list[JobDetails]:
    """Those for which every filter holds; one whose values are empty is none. Raises BadSpec."""
    asked = [(each, [value for value in each["value"] if value]) for each in filters]
    return [job for job in found if all(_holds(job, each, values) for each, values in asked if values)]


def _holds(job: JobDetails, condition: Mapping[str, Any], values: Sequence[str]) -> bool:
    key, operator = str(condition["key"]), str(condition["operator"])
    if operator == "between":
        if key != "create_time" or len(values) != 2 or not all(value.isdecimal() for value in values):
            raise BadSpec("between is for create_time and has two times in milliseconds", field="filters")
        return int(values[0]) <= milliseconds(job.job.created_at) <= int(values[1])
    if key == "create_time":
        raise BadSpec("create_time is asked for by between", field="filters")
    value = _value(job, key)
    if operator == "like":
        return any(each in value for each in values)
    return (value in values) == (operator == "in")


def _value(job: JobDetails, key: str) -> str:
    if key == "name":
        return job.job.name
    if key == "phase":
        return phase_of(job)[0]
    if key == "user_id":
        return str(metadata_of(job)["user_name"])
    if key == "algorithm_name":
        return str(job.spec["training_config"]["training_type"])
    return "job" if key == "kind" else job.job.framework
