"""Lists of jobs: filters and orders, a page at a time."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session

from app.models import Job, JobLabel
from app.security.permissions import Caller
from app.services import projects
from app.services.job_details import JobDetails, details_of
from app.services.pages import Orders, Page, PageRequest, page_of

ORDERS: Orders = {
    "created_at": (Job.created_at, Job.id),
    "priority": (Job.priority, Job.id),
    "name": (Job.name, Job.id),
    "status": (Job.status, Job.id),
}
FILTERS: dict[str, Callable[[Any], ColumnElement[bool]]] = {
    "status": Job.status.in_,
    "queue": lambda queue: Job.queue == queue,
    "project": lambda project: Job.project == project,
    # LIKE ignores case on SQLite only; this means the same everywhere.
    "name": lambda prefix: func.substr(Job.name, 1, len(prefix)) == prefix,
    "training_type": lambda kind: Job.training_type == kind,
    "framework": lambda framework: Job.framework == framework,
    "created_after": lambda moment: Job.created_at > moment,
    "created_before": lambda moment: Job.created_at < moment,
    "parent_job_id": lambda parent: Job.parent_job_id == parent,
}


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[JobDetails]:
    """The caller's jobs that pass every filter. Raises NotFound for a project that is not the caller's."""
    query = select(Job)
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    if "project" in filters:
        projects.visible(session, caller, filters["project"])
    for name, value in filters.items():
        if name in FILTERS:
            query = query.where(FILTERS[name](value))
    for key, value in filters.get("labels", ()):
        query = query.where(_has_label(key, value))
    found = page_of(session, query, ORDERS, request)
    return Page(
        items=details_of(session, found.items), next_after=found.next_after, total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )  # fmt: skip


def _has_label(key: str, value: str) -> ColumnElement[bool]:
    return exists().where(JobLabel.job_id == Job.id, JobLabel.key == key, JobLabel.value == value)
