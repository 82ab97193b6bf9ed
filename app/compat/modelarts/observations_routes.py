"""Routes of logs, metrics, events, stages and tasks of a training job."""

import math
from collections.abc import Sequence
from typing import Any

from flask import Blueprint

from app.compat.modelarts import lookup
from app.compat.modelarts.observations import (
    SERIES,
    cursor_of,
    event_of,
    level_of,
    message_of,
    minute_means,
    newest,
    page_of,
    source_of,
    stages_of,
)
from app.compat.modelarts.queries import EventsQuerySchema, JobLogQuerySchema, TasksQuerySchema
from app.compat.modelarts.status import nodes_of_tasks, part_of_task, ranks_of_tasks, tasks_of
from app.domain.errors import InvalidRequest, NotFound
from app.domain.lifecycle.states import TERMINAL
from app.domain.metric_groups import node_metric
from app.host.clock import utc_now
from app.http.context import plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.jobs import history
from app.services.jobs.details import JobDetails
from app.services.rows import JobEvent, Session, SweepEvent
from app.services.sweeps import history as sweep_history
from app.services.telemetry import stored_metrics
from app.storage.logs import LogLine, LogReader

blueprint = Blueprint("observations", __name__)
_MOST_BYTES = 5 * 2**20
_MOST_LINES = 50_000
_MOST_EVENTS = 10_000
_JOB = "/<project_id>/training-jobs/<training_job_id>"


@blueprint.get(f"{_JOB}/events")
@operation("List the events of a training job", permission=Permission.VIEW, query=EventsQuerySchema)
def list_events(project_id: str, training_job_id: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        job = lookup.find(session, training_job_id)
        is_sweep = lookup.is_sweep(job)
        read = sweep_history.events_after if is_sweep else history.events_after
        tasks = {} if is_sweep else ranks_of_tasks(job.document)
        events: Sequence[JobEvent | SweepEvent] = read(session, job.job.id, 0, limit=_MOST_EVENTS)
        found = [
            event_of(event, tasks)
            for event in events
            if query.get("start_time", event.at) <= event.at <= query.get("end_time", event.at)
            and query.get("level", level_of(event)) == level_of(event)
            and query.get("source", source_of(event)) == source_of(event)
            and query.get("pattern", "") in message_of(event, tasks)
        ]
    order = query.get("order", "desc")
    begin, end = query["offset"], query["offset"] + query["limit"]
    shown = (found if order == "asc" else found[::-1])[begin:end]
    times = {name: query[name].isoformat() if name in query else "" for name in ("start_time", "end_time")}
    counts = {"total": len(found), "limit": query["limit"], "offset": query["offset"]}
    return Reply({**counts, "order": order, **times, "events": shown})


@blueprint.get(f"{_JOB}/stages")
@operation("List the stages of a training job", permission=Permission.VIEW)
def list_stages(project_id: str, training_job_id: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        job_id = lookup.find_observed(session, training_job_id).job.id
        records = stages_of(job_id, history.events_after(session, job_id, 0, limit=_MOST_EVENTS))
    return Reply({"total_count": len(records), "running_records": records})


@blueprint.get(f"{_JOB}/tasks")
@operation("List the tasks of a training job, by attempt", permission=Permission.VIEW, query=TasksQuerySchema)
def list_tasks(project_id: str, training_job_id: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        attempts = history.attempts(session, lookup.find_observed(session, training_job_id).job.id)
        found = [
            {"task": task, "ip": "", "host_ip": node, "schedule_count": attempt.number}
            for attempt in attempts
            for task, node in nodes_of_tasks(attempt)
            if query.get("schedule_count", attempt.number) == attempt.number
        ]
    return Reply(found)


@blueprint.get(f"{_JOB}/metrics/<task_id>")
@operation("Read metrics of a task per minute", permission=Permission.VIEW)
def get_metrics(project_id: str, training_job_id: str, task_id: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        found = lookup.find_observed(session, training_job_id)
        _refuse_other_tasks(found, task_id)
        attempts = history.attempts(session, found.job.id)
        begun = next((each.started_at for each in attempts if each.started_at is not None), None)
        part = part_of_task(attempts[-1], task_id) if attempts else 0
        series_of = {name: node_metric(part, ours) if ours else "" for name, ours in SERIES.items()}
        names = [name for name in series_of.values() if name]
        series = stored_metrics.series(session, found.job.id, names=names, max_points=10_000)
    if begun is None:
        return Reply({"metrics": [{"metric": name, "value": []} for name in SERIES]})
    end = found.job.finished_at or utc_now()
    points = {
        name: [(each.at, each.value) for each in of_it if math.isfinite(each.value)] for name, of_it in series.items()
    }
    return Reply(
        {
            "metrics": [
                {"metric": name, "value": minute_means(points.get(ours, []), begun, end)}
                for name, ours in series_of.items()
            ]
        }
    )


@blueprint.get(f"{_JOB}/tasks/<task_id>/logs/preview")
@operation("Read the end of a task's log", permission=Permission.VIEW)
def preview_log(project_id: str, training_job_id: str, task_id: str) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        lines = _lines(session, training_job_id, task_id, most=_MOST_LINES)
    content = newest(lines, _MOST_BYTES)
    whole = sum(len(line.line.encode()) + 1 for line in lines)
    return Reply({"content": content, "current_size": len(content.encode()), "full_size": whole})


@blueprint.get(f"{_JOB}/logs/<task_id>")
@operation("Read the log of a task in pages", permission=Permission.VIEW, query=JobLogQuerySchema)
def page_log(project_id: str, training_job_id: str, task_id: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    order, count = query.get("order", "desc"), query["lines"]
    try:
        base = cursor_of(query["base_line"]) if "base_line" in query else None
    except ValueError as error:
        raise InvalidRequest("must be the start_line or end_line of an earlier answer", field="base_line") from error
    with plane().db.read() as session:
        lines = _lines(session, training_job_id, task_id, most=_MOST_LINES)
    if order == "asc":
        return Reply(page_of([line for line in lines if base is None or line.cursor > base][:count]))
    return Reply(page_of([line for line in lines if base is None or line.cursor < base][-count:]))


def _lines(session: Session, training_job_id: str, task_id: str, *, most: int) -> list[LogLine]:
    """The last lines of the task's first rank, or of all ranks if there is one task."""
    found = lookup.find_observed(session, training_job_id)
    _refuse_other_tasks(found, task_id)
    tasks = ranks_of_tasks(found.document)
    rank = tasks[task_id].start if len(tasks) > 1 else None
    live = found.job.state not in TERMINAL
    return LogReader(plane().storage, found.job.id).tail(most, rank=rank, live=live)


def _refuse_other_tasks(found: JobDetails, task_id: str) -> None:
    if task_id not in tasks_of(found):
        raise NotFound(f"the job has no task {task_id[:64]}; it has {', '.join(tasks_of(found)[:8])}")
