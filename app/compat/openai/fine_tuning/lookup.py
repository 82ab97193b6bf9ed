"""Fine-tuning jobs, their files, events and checkpoints: found and listed for the caller."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.compat.openai.bodies import listed
from app.compat.openai.fine_tuning import checkpoints as points
from app.compat.openai.fine_tuning.data_files import UploadedDataFile
from app.compat.openai.fine_tuning.events import WAITS, event_id_of, events_of, step_of_id, waiting_of
from app.compat.openai.fine_tuning.from_native import ID, foreign_of, job_of, native_id
from app.compat.openai.fine_tuning.to_native import label_of
from app.domain.errors import BadSpec, NotFound
from app.domain.spec.inference import TRAINING
from app.host.clock import utc_now
from app.http.context import caller
from app.services.attempts import checkpoints
from app.services.files import listing as files
from app.services.files import result_files
from app.services.jobs import details, listing, lookup, timeline
from app.services.jobs.details import JobDetails
from app.services.model_registry import fine_tunes
from app.services.requests.pagination import PageRequest
from app.services.rows import Job, Session

MOST_READ = 10_000  # jobs that are read for a filter which labels can't answer; then a page ends, and has more
_NEWEST, _PAGE = "-created_at", 100


def find(session: Session, job_id: str) -> Job:
    """A training job. Raises NotFound, also for jobs of other kinds."""
    try:
        job = lookup.find(session, caller(), native_id(job_id) or job_id)
    except NotFound as error:
        raise type(error)(f"no fine-tuning job {job_id[:64]}") from error
    if job.kind != TRAINING:
        raise NotFound(f"{job_id[:64]} trains nothing: it is of kind {job.kind}")
    return job


def model_named(session: Session, name: str) -> str:
    """The native id of a fine-tuning job for its id, any other name as it is. Raises NotFound naming the field."""
    if not name.startswith(ID):
        return name
    try:
        return find(session, name).id
    except NotFound as error:
        error.field = "model"
        raise


def file_of(session: Session, file_id: str, field: str) -> UploadedDataFile:
    """Raises NotFound naming the field."""
    try:
        file = files.find(session, caller(), file_id)
    except NotFound as error:
        error.field = field
        raise
    return UploadedDataFile(file.id, file.purpose, file.status, file.status_details, file.records, file.shape)


def model_of(session: Session, job: Job) -> str:
    """The name of the model that the job makes; its id where it has no other."""
    row = fine_tunes.of_jobs(session, [job.id]).get(job.id)
    return row.name if row is not None else job.id


def shown(session: Session, found: Sequence[JobDetails]) -> list[dict[str, Any]]:
    ids = [each.job.id for each in found]
    rows, results = fine_tunes.of_jobs(session, ids), result_files.of_jobs(session, ids)
    names = {job_id: row.name for job_id, row in rows.items()}
    return [job_of(each, names.get(each.job.id), results.get(each.job.id, ())) for each in found]


def page(session: Session, query: Mapping[str, Any]) -> dict[str, Any]:
    """Training jobs, the newest first; ``metadata``: pairs that they have, or "null": those without any."""
    limit, wanted = query["limit"], query.get("metadata")
    labels = [(label, value) for name, value in _pairs(wanted) if (label := label_of(name, value)) is not None]
    filters: dict[str, Any] = {"kind": TRAINING, **({"labels": labels} if labels else {})}
    size = limit + 1 if wanted is None else _PAGE
    found: list[JobDetails] = []
    has_more = False
    for read, each in enumerate(_jobs(session, filters, _after(session, query["after"]), size)):
        is_wanted = _has(each, wanted)
        has_more = read == MOST_READ or (is_wanted and len(found) == limit)
        if has_more:
            break
        if is_wanted:
            found.append(each)
    return listed(shown(session, found), has_more)


def events(session: Session, job_id: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Newest first; why the job waits, if it does, is first of all."""
    found = details.details(session, find(session, job_id))
    job, limit, after = found.job, query["limit"], query["after"]
    key = _key_of(session, job, after) if after not in ("", WAITS) else None
    entries = timeline.newest(session, job.id, points.MEASURED, limit=limit + 1, after=key)
    items = events_of(found, entries, model_of(session, job))
    waiting = waiting_of(found, utc_now()) if not after else None
    items = [*([waiting] if waiting is not None else []), *items]
    return listed(items[:limit], len(items) > limit)


def saved(session: Session, job_id: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Checkpoints that are not deleted, newest first."""
    job = find(session, job_id)
    model = model_of(session, job)
    rows = [each for each in reversed(checkpoints.list_for(session, job.id)) if not each.diverged]
    items = [points.checkpoint_of(job, each, model) for each in rows]
    if query["after"]:
        items = items[_place(items, query["after"]) + 1 :]
    return listed(items[: query["limit"]], len(items) > query["limit"])


def _jobs(
    session: Session, filters: Mapping[str, Any], after: tuple[Any, ...] | None, size: int
) -> Iterator[JobDetails]:
    while True:
        found = listing.page(session, caller(), filters, PageRequest(size=size, order=_NEWEST, after=after))
        yield from found.items
        if found.next_after is None:
            return
        after = found.next_after


def _after(session: Session, job_id: str) -> tuple[Any, ...] | None:
    if not job_id:
        return None
    job = _named(lambda: lookup.find(session, caller(), native_id(job_id) or job_id))
    return job.created_at, job.id


def _pairs(wanted: object) -> list[tuple[str, str]]:
    return list(wanted.items()) if isinstance(wanted, Mapping) else []


def _has(found: JobDetails, wanted: object) -> bool:
    metadata = foreign_of(found).get("metadata") or {}
    if wanted is None:
        return True
    return all(metadata.get(name) == value for name, value in _pairs(wanted)) if wanted != "null" else not metadata


def _key_of(session: Session, job: Job, event_id: str) -> timeline.Key:
    step = step_of_id(event_id)
    if step is None:
        key = timeline.key_of_event(session, job.id, event_id_of(event_id))
    else:
        key = timeline.key_of_step(session, job.id, points.MEASURED[0], step)
    if key is None:
        raise _unknown()
    return key


def _place(items: Sequence[Mapping[str, Any]], item_id: str) -> int:
    place = next((place for place, each in enumerate(items) if each["id"] == item_id), None)
    if place is None:
        raise _unknown()
    return place


def _named(find_: Callable[[], Job]) -> Job:
    try:
        return find_()
    except NotFound as error:
        raise _unknown() from error


def _unknown() -> BadSpec:
    return BadSpec("is no id of this list; take last_id of the page before", field="after")
