"""Training jobs: found by id, searched, and translated."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from app.compat.every_job import MAX_JOBS, every_job, moment_of
from app.compat.ids import job_id_of, sweep_id_of
from app.compat.modelarts.endpoints import endpoints_of
from app.compat.modelarts.from_native import TranslationData, algorithm_name, is_deleted, is_trial, job_of
from app.compat.modelarts.status import (
    NO_TROUBLE,
    STATES_OF_PHASES,
    UncontrolledJobs,
    milliseconds,
    phase_of,
    times_of_search,
)
from app.compat.modelarts.to_native import DIALECT
from app.domain.errors import BadSpec, NotFound
from app.host.clock import utc_now
from app.http.context import caller, plane
from app.services.access import api_keys
from app.services.attempts import leases
from app.services.jobs import dialect_notes, history, listing, lookup
from app.services.jobs.details import JobDetails, details, of_new
from app.services.nodes import stuck_devices
from app.services.rows import Attempt, Job, Session, Sweep
from app.services.sweeps import foreign
from app.services.sweeps import lookup as sweep_lookup
from app.services.sweeps.lookup import SWEEP_ID


def find(session: Session, training_job_id: str) -> JobDetails:
    """Raises NotFound for a job that does not exist, is deleted, or belongs to another project."""
    try:
        found = details(session, lookup.find(session, caller(), job_id_of(training_job_id)))
    except NotFound:
        return foreign.as_job(find_sweep(session, training_job_id))
    if is_deleted(found):
        raise _missing(training_job_id)
    return found


def find_sweep(session: Session, training_job_id: str) -> Sweep:
    """The sweep of a training job with a search. Raises NotFound for other jobs, too."""
    try:
        sweep = sweep_lookup.find(session, caller(), sweep_id_of(training_job_id))
    except NotFound as error:
        raise _missing(training_job_id) from error
    if DIALECT not in sweep.foreign or foreign.is_deleted(sweep, DIALECT):
        raise _missing(training_job_id)
    return sweep


def find_observed(session: Session, training_job_id: str) -> JobDetails:
    """The job whose logs and metrics are those of the training job: of a search that of its best or newest trial.

    Raises NotFound.
    """
    found = find(session, training_job_id)
    if not is_sweep(found):
        return found
    shown = foreign.representative(session, find_sweep(session, training_job_id))
    if shown is None:
        raise NotFound("The search has no trial yet.")
    return shown


def is_sweep(found: JobDetails) -> bool:
    return SWEEP_ID.fullmatch(found.job.id) is not None


def _missing(training_job_id: str) -> NotFound:
    return NotFound(f"Training job (ID: {training_job_id[:64]}) not found.")


def shown(session: Session, found: JobDetails) -> dict[str, Any]:
    return shown_together(session, [found])[0]


def shown_new(session: Session, job: Job) -> dict[str, Any]:
    """A job that is being created, without attempts."""
    found = of_new(job)
    return _translated(session, found, (), _cluster(session, [found], NO_TROUBLE))


def shown_new_search(session: Session, sweep: Sweep) -> dict[str, Any]:
    """A sweep that is being created."""
    found = foreign.as_job(sweep)
    return _translated(session, found, (), _cluster(session, [found], NO_TROUBLE))


def shown_together(session: Session, found: Sequence[JobDetails]) -> list[dict[str, Any]]:
    cluster = _cluster(session, found, _trouble(session))
    return [_translated(session, each, history.attempts(session, each.job.id), cluster) for each in found]


def rows(
    session: Session, filters: Mapping[str, Any] | None = None, order: str = "-created_at"
) -> Iterator[JobDetails]:
    """Jobs of the project that pass the filters of `services.jobs.listing`, at most ``MAX_JOBS``, and all searches."""
    jobs = (each for each in every_job(session, filters, order) if not is_deleted(each) and not is_trial(each))
    is_newest_first = order.startswith("-")
    sweeps = _sweeps(session)
    return heapq.merge(
        jobs,
        reversed(sweeps) if is_newest_first else sweeps,
        key=lambda each: (each.job.created_at, each.job.id),
        reverse=is_newest_first,
    )


def _sweeps(session: Session) -> list[JobDetails]:
    """Searches as jobs, the oldest first."""
    found = foreign.listed(session, caller(), DIALECT)
    return [foreign.as_job(each) for each in found if not foreign.is_deleted(each, DIALECT)]


def delete(training_job_id: str) -> None:
    with plane().db.read() as session:
        found = find(session, training_job_id)
    withdraw = foreign.withdraw if is_sweep(found) else dialect_notes.withdraw
    withdraw(plane(), caller(), found.job.id, dialect=DIALECT)


def _translated(
    session: Session, found: JobDetails, attempts: Sequence[Attempt], cluster: TranslationData
) -> dict[str, Any]:
    translated = job_of(found, attempts, cluster)
    if is_sweep(found):
        return {**translated, "status": {**translated["status"], **times_of_search(found, cluster.now)}}
    return {**translated, "endpoints": endpoints_of(session, found, translated["metadata"])}


def _cluster(session: Session, found: Sequence[JobDetails], trouble: UncontrolledJobs) -> TranslationData:
    return TranslationData(
        capacities=plane().inventory.capacities(session),
        names=api_keys.names(session, {each.job.created_by for each in found}),
        trouble=trouble,
        now=utc_now(),
    )


def _trouble(session: Session) -> UncontrolledJobs:
    return UncontrolledJobs(unheard=leases.unconfirmed_jobs(session), unstoppable=stuck_devices.jobs(session))


def searched(session: Session, wanted: Mapping[str, Any]) -> tuple[int, int, Sequence[JobDetails]]:
    """(number of jobs, number of selected jobs, page of selected jobs); numbers up to ``MAX_JOBS``."""
    total = listing.count_visible(session, caller(), DIALECT, most=MAX_JOBS) + len(_sweeps(session))
    selected = conditions(wanted["filters"])
    found = rows(session, narrowed(selected), "-created_at" if wanted["order"] == "desc" else "created_at")
    begin = wanted["offset"] * wanted["limit"]  # offset counts pages
    end = begin + wanted["limit"]
    if not selected:
        return total, total, list(islice(found, begin, end))
    trouble = _trouble(session)
    matching = [each for each in found if all(condition.holds(each, trouble) for condition in selected)]
    return total, len(matching), matching[begin:end]


class SearchCondition(NamedTuple):
    """``values``: non-empty strings; for `between` two times in milliseconds."""

    key: str
    operator: str
    values: Sequence[Any]

    def holds(self, job: JobDetails, trouble: UncontrolledJobs) -> bool:
        if self.operator == "between":
            least, most = self.values
            return bool(least <= milliseconds(job.job.created_at) <= most)
        value = _value(job, self.key, trouble)
        if self.operator == "like":
            return any(each in value for each in self.values)
        return (value in self.values) == (self.operator == "in")


def conditions(filters: Sequence[Mapping[str, Any]]) -> list[SearchCondition]:
    """The conditions of filters; one with only empty values is ignored. Raises BadSpec."""
    asked = (
        SearchCondition(each["key"], each["operator"], [text for text in each["value"] if text]) for each in filters
    )
    return [_checked(each) for each in asked if each.values]


def narrowed(asked: Sequence[SearchCondition]) -> dict[str, Any]:
    """Filters of `services.jobs.listing` that every selected job passes; they may pass others, too."""
    found: dict[str, Any] = {}
    for key, operator, values in asked:
        if (key, operator) == ("phase", "in"):
            found.setdefault("status", [state for each in values for state in STATES_OF_PHASES.get(each, ())])
        elif key == "name" and operator in ("in", "like"):
            found.setdefault("name_contains", values)
        elif operator == "between":
            found.setdefault("created_after", moment_of(values[0] - 1))
            found.setdefault("created_before", moment_of(values[1] + 1))
    return found


def _checked(asked: SearchCondition) -> SearchCondition:
    if asked.operator == "between":
        if asked.key != "create_time" or len(asked.values) != 2 or not all(each.isdecimal() for each in asked.values):
            raise BadSpec("between is for create_time, with two times in milliseconds", field="filters")
        return asked._replace(values=[int(each) for each in asked.values])
    if asked.key == "create_time":
        raise BadSpec("create_time needs the operator between", field="filters")
    return asked


def _value(job: JobDetails, key: str, trouble: UncontrolledJobs) -> str:
    if key == "name":
        return job.job.name
    if key == "phase":
        return phase_of(job, trouble)[0]
    if key == "user_id":
        return job.job.created_by
    if key == "algorithm_name":
        return algorithm_name(job) or ""
    return "job" if key == "kind" else job.job.framework
