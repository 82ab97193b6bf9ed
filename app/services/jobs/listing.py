"""Lists of jobs: filters and orders, a page at a time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, false, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.inference import TRAINING, TYPES
from app.models import Job, JobLabel
from app.security.permissions import Caller
from app.services.access import projects
from app.services.jobs import handles
from app.services.jobs.details import JobDetails, details_of, without_outlook
from app.services.requests.existing_rows import existing_in
from app.services.requests.pagination import Orders, Page, PageRequest, page_by_id
from app.services.requests.short_cache import ShortCache

ORDERS: Orders = {
    "created_at": (Job.created_at, Job.id),
    "priority": (Job.priority, Job.id),
    "name": (Job.name, Job.id),
    "status": (Job.status, Job.created_at, Job.id),
}
FEW = 10_000
# Jobs with a common name prefix are often created together, possibly far from the start of the list.
FEW_OF_A_NAME = 20_000
# More labels than this use subqueries: SQLite joins at most 64 tables, and query planners try all join orders of few.
MOST_JOINED = 6
_LAST_CHARACTER = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)


def _begins_with(prefix: str) -> ColumnElement[bool]:
    """Prefix match as a range: on SQLite LIKE ignores case and would not use the index."""
    least = Job.name >= prefix
    head = prefix.rstrip(_LAST_CHARACTER)
    if not head:
        return least
    following = ord(head[-1]) + 1
    return least & (Job.name < head[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following))


def _of_kinds(column: InstrumentedAttribute[str], kinds: Sequence[str]) -> ColumnElement[bool]:
    return or_(*(_of_kind(column, kind) for kind in kinds))


def _of_kind(column: InstrumentedAttribute[str], kind: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = column.not_in(TYPES.values()) if kind == TRAINING else column == TYPES[kind]
    return found


FILTERS: dict[str, Callable[[Any], ColumnElement[bool]]] = {
    "status": Job.status.in_,
    "queue": lambda queue: Job.queue == queue,
    "project": lambda project: Job.project == project,
    "name": _begins_with,
    "training_type": lambda kind: Job.training_type == kind,
    "kind": lambda kind: _of_kind(Job.training_type, kind),
    "kinds": lambda kinds: _of_kinds(Job.training_type, kinds),
    "framework": lambda framework: Job.framework == framework,
    "created_after": lambda moment: Job.created_at > moment,
    "created_before": lambda moment: Job.created_at < moment,
    "finished_after": lambda moment: Job.finished_at > moment,
    "finished_before": lambda moment: Job.finished_at < moment,
    "created_by": lambda author: Job.created_by == author,
    "created_by_one_of": Job.created_by.in_,
    "ids": Job.id.in_,
    # Any of the texts; whether case matters depends on the database.
    "name_contains": lambda texts: or_(*(Job.name.contains(text, autoescape=True) for text in texts)),
    "parent_job_id": lambda parent: Job.parent_job_id == parent,
    "sweep_id": lambda sweep_id: Job.sweep_id == sweep_id,
    "evaluated_job_id": lambda job_id: Job.evaluated_job_id == job_id,
}


def _may_have(row: type[JobLabel], statuses: Sequence[str]) -> ColumnElement[bool]:
    """Status filter on a label's row, which stores only the terminal state of a job."""
    ends = sorted(TERMINAL.intersection(statuses))
    lives: ColumnElement[bool] = row.ended_as.is_(None)
    if not ends:
        return lives
    ended: ColumnElement[bool] = row.ended_as.in_(ends)
    return ended if TERMINAL.issuperset(statuses) else or_(lives, ended)


# The same filters on a label's row, where its columns suffice.
_OF_LABELS: dict[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "status": _may_have,
    "queue": lambda row, queue: row.queue == queue,
    "project": lambda row, project: row.project == project,
    "training_type": lambda row, kind: row.training_type == kind,
    "kind": lambda row, kind: _of_kind(row.training_type, kind),
    "kinds": lambda row, kinds: _of_kinds(row.training_type, kinds),
    "framework": lambda row, framework: row.framework == framework,
    "created_after": lambda row, moment: row.created_at > moment,
    "created_before": lambda row, moment: row.created_at < moment,
}
_LABEL_ORDERS: Orders = {"created_at": (JobLabel.created_at, JobLabel.job_id)}
Conditions = Sequence[tuple[str, Any]]


def page(
    session: Session,
    caller: Caller,
    filters: Mapping[str, Any],
    request: PageRequest,
    *,
    with_outlook: bool = True,
    shared: ShortCache | None = None,
) -> Page[JobDetails]:
    """The caller's jobs that pass every filter. Raises NotFound for a project that is not the caller's.

    ``with_outlook`` False: without queue positions and estimated starts, whose cost grows with the waiting jobs.
    ``shared``: readers share estimated starts by it.
    ``handle``: a job's id, name, or the end of its id; of many matches only the newest are found.
    """
    if "project" in filters:
        projects.visible(session, caller, filters["project"])
    asked = [(name, value) for name, value in filters.items() if name in FILTERS]
    if caller.project is not None:
        asked.append(("project", caller.project))
    if "handle" in filters:
        project = caller.project or filters.get("project")
        kinds = [FILTERS[name](filters[name]) for name in ("kind", "kinds") if name in filters]
        found_ids = handles.matching(session, filters["handle"], project=project, among=kinds)
        asked.append(("ids", found_ids))
    labels = filters.get("labels", ())
    found = _labelled(session, labels, asked, request) if labels else _plain(session, asked, request)
    return Page(
        items=details_of(session, found.items, shared) if with_outlook else without_outlook(session, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def count_visible(session: Session, caller: Caller, dialect: str, *, most: int) -> int:
    """Number of the caller's jobs that clients of this dialect see as such, up to ``most``."""
    found = _visible(select(Job.id), caller, dialect).limit(most).subquery()
    return session.scalar(select(func.count()).select_from(found)) or 0


def changed_since(session: Session, caller: Caller, moment: datetime) -> list[JobDetails]:
    """The caller's jobs that were changed at this time or later, the oldest first."""
    query = select(Job).where(Job.updated_at >= moment).order_by(Job.created_at, Job.id)
    return details_of(session, session.scalars(_of_caller(query, caller)).all())


def newest_change(session: Session, caller: Caller) -> tuple[int, Any, Any]:
    """How many jobs the caller sees, and a value that differs whenever one of them has changed."""
    query = select(func.count(), func.max(Job.updated_at), func.sum(Job.version))
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    count, newest, versions = session.execute(query).one()
    return count, newest, versions


def existing(session: Session, ids: Collection[str]) -> set[str]:
    """Those of the ids that are of jobs."""
    return existing_in(session, Job.id, ids)


def by_id(session: Session, caller: Caller, ids: Collection[str]) -> dict[str, JobDetails]:
    """The jobs with these ids that are visible to the caller."""
    query = _of_caller(select(Job).where(Job.id.in_(ids)), caller)
    return {each.job.id: each for each in details_of(session, session.scalars(query).all())}


def _visible(query: Select[Any], caller: Caller, dialect: str) -> Select[Any]:
    is_withdrawn = func.coalesce(Job.foreign[dialect]["deleted"].as_boolean(), false())
    # In the dialect of their sweep trials are no jobs.
    is_trial = Job.sweep_id.is_not(None) & Job.foreign[dialect]["trial"].as_string().is_not(None)
    return _of_caller(query.where(~is_withdrawn, ~is_trial), caller)


def _of_caller(query: Select[Any], caller: Caller) -> Select[Any]:
    return query if caller.project is None else query.where(Job.project == caller.project)


def _plain(session: Session, asked: Conditions, request: PageRequest) -> Page[Job]:
    query = select(Job.id).where(*(FILTERS[name](value) for name, value in asked))
    narrowing = {name for name, _ in asked} - {"project"}
    few = FEW_OF_A_NAME if narrowing & {"name", "ids"} else FEW if len(narrowing) > 1 else 0
    return page_by_id(session, Job, query, ORDERS, request, few=few)


def _labelled(
    session: Session, labels: Sequence[tuple[str, str]], asked: Conditions, request: PageRequest
) -> Page[Job]:
    """Search the rows of the first label; rows of jobs are joined only for filters that label rows can't answer."""
    query = select(JobLabel.job_id).where(*_conditions(JobLabel, *labels[0], asked))
    for i, (key, value) in enumerate(labels[1:], 1):
        other = aliased(JobLabel)
        conditions = _conditions(other, key, value, asked)
        if i < MOST_JOINED:
            query = query.join(other, other.job_id == JobLabel.job_id).where(*conditions)
        else:
            query = query.where(JobLabel.job_id.in_(select(other.job_id).where(*conditions)))
    of_jobs = [FILTERS[name](value) for name, value in asked if not _label_rows_answer(name, value)]
    with_jobs = query.join(Job, Job.id == JobLabel.job_id).where(*of_jobs)
    counted = with_jobs if of_jobs else query
    if request.order.removeprefix("-") in _LABEL_ORDERS:
        return page_by_id(session, Job, counted, _LABEL_ORDERS, request, few=FEW)
    return page_by_id(session, Job, with_jobs, ORDERS, request, counted=counted)


def _conditions(row: type[JobLabel], key: str, value: str, asked: Conditions) -> list[ColumnElement[bool]]:
    on_labels = [_OF_LABELS[name](row, wanted) for name, wanted in asked if name in _OF_LABELS]
    return [row.key == key, row.value == value, *on_labels]


def _label_rows_answer(name: str, value: object) -> bool:
    """Whether label rows answer the filter completely."""
    if name == "status":
        return isinstance(value, Collection) and TERMINAL.issuperset(value)
    return name in _OF_LABELS
