"""Pods, one per rank of a training job, with their logs; and events of the jobs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from flask import Blueprint, Response

from app.compat.ome.api import lookup
from app.compat.ome.api.answers import list_or_watch, object_reply
from app.compat.ome.api.events import source_of
from app.compat.ome.api.queries import ObjectQuerySchema, PodLogQuerySchema, WatchQuerySchema
from app.compat.ome.api.selectors import selected
from app.compat.ome.api.sources import ObjectSource, groups_of_few, groups_of_jobs
from app.compat.ome.from_native import pods_of, rank_of
from app.domain.errors import InvalidRequest, NotFound
from app.domain.lifecycle.states import TERMINAL
from app.host.clock import utc_now
from app.http.context import plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.http.sse import StreamFormat, stream
from app.security.permissions import Permission
from app.services.jobs import history
from app.services.jobs import lookup as job_lookup
from app.services.jobs.details import JobDetails
from app.services.rows import Job, Session
from app.storage.logs import START, Cursor, LogLine, LogReader

blueprint = Blueprint("pods", __name__)
_NAMESPACE = "/api/v1/namespaces/<namespace>"
_MOST_LINES, _BATCH = 50_000, 10_000
_LOG = StreamFormat(
    mimetype="text/plain",
    opening="",
    idle="",
    closing="",
    failure=lambda problem: f"{problem['message']}\n",
    frame=lambda frame: f"{frame.data}\n",
)
Query = Mapping[str, Any]
Texts = Iterator[str | None]


@blueprint.get("/api/v1/pods")
@operation(
    "List or watch the pods of all namespaces", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)
def list_all_pods(query: Query) -> Reply | Response:
    return _listed(None, query)


@blueprint.get(f"{_NAMESPACE}/pods")
@operation(
    "List or watch the pods: ranks of training jobs", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)
def list_pods(namespace: str, query: Query) -> Reply | Response:
    return _listed(namespace, query)


@blueprint.get(f"{_NAMESPACE}/pods/<pod_name>")
@operation("Read a pod", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_pod(namespace: str, pod_name: str, query: Query) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        found, rank = _of_pod(session, namespace, pod_name)
        return object_reply(pods_of(found, history.newest_attempts(session, [found.job.id]).get(found.job.id))[rank])


@blueprint.get(f"{_NAMESPACE}/pods/<pod_name>/log")
@operation("Read the log of a pod", permission=Permission.VIEW, query=PodLogQuerySchema, media="text", refuses=(400,))
def get_log(namespace: str, pod_name: str, query: Query) -> Response:
    if query.get("container", "trainer") != "trainer":
        raise InvalidRequest("the only container is trainer", field="container")
    with plane().db.read() as session:
        found, rank = _of_pod(session, namespace, pod_name)
    reader = LogReader(plane().storage, found.job.id)
    lines = _lines(reader, found.job, rank, query)
    after = lines[-1].cursor if lines else START
    shown = [_line(each, query) for each in lines if _is_recent(each, query)]
    if query.get("tailLines") == 0:
        shown = []
    if query["follow"] and not query["previous"]:
        return stream(_cut(_followed(shown, reader, found.job.id, after, rank, query), query), _LOG)
    text = _text(shown).encode()
    return Response(text[: query.get("limitBytes", len(text))], mimetype="text/plain")


@blueprint.get(f"{_NAMESPACE}/events")
@operation(
    "List or watch the events of training jobs", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)
def list_events(namespace: str, query: Query) -> Reply | Response:
    selection = selected(query["labelSelector"], query["fieldSelector"])
    return list_or_watch(source_of(namespace, selection.fields.get("involvedObject.name")), query)


def _listed(namespace: str | None, query: Query) -> Reply | Response:
    job = selected(query["labelSelector"], query["fieldSelector"]).labels.get("job-name")
    list_groups = groups_of_jobs(_pods)
    if namespace is not None and job is not None and not query["watch"]:
        list_groups = groups_of_few(_pods, partial(lookup.named, namespace=namespace, name=job))
    return list_or_watch(ObjectSource(kind="Pod", list_groups=list_groups, api_version="v1"), query)


def _pods(session: Session, found: Sequence[JobDetails]) -> list[list[dict[str, Any]]]:
    attempts = history.newest_attempts(session, [each.job.id for each in found])
    return [pods_of(each, attempts.get(each.job.id)) for each in found]


def _of_pod(session: Session, namespace: str, pod: str) -> tuple[JobDetails, int]:
    missing = NotFound(f'pods "{pod[:64]}" not found')
    try:
        found = lookup.find_with_pods(session, namespace, pod.rpartition("-")[0])
    except NotFound as error:
        raise missing from error
    rank = rank_of(found, pod)
    if rank is None:
        raise missing
    return found, rank


def _lines(reader: LogReader, job: Job, rank: int, query: Query) -> list[LogLine]:
    """The last lines of all attempts, or with ``previous`` of the last but one attempt.

    Raises InvalidRequest where there is no previous attempt.
    """
    wanted, live = max(1, query.get("tailLines", _MOST_LINES)), job.state not in TERMINAL
    if not query["previous"]:
        return reader.tail(wanted, rank=rank, live=live)
    if job.attempt < 2:
        raise InvalidRequest("the job has no previous attempt", field="previous")
    earlier = reader.read((job.attempt - 1, 0), rank=rank, limit=_MOST_LINES, live=live)
    return [each for each in earlier if each.attempt == job.attempt - 1][-wanted:]


def _is_recent(line: LogLine, query: Query) -> bool:
    seconds = query.get("sinceSeconds")
    return seconds is None or datetime.fromisoformat(line.at) >= utc_now() - timedelta(seconds=seconds)


def _line(line: LogLine, query: Query) -> str:
    return f"{line.at} {line.line}" if query["timestamps"] else line.line


def _cut(feed: Texts, query: Query) -> Texts:
    """The feed up to ``limitBytes``, in whole lines."""
    left = query.get("limitBytes")
    for text in feed:
        if left is None or text is None:
            yield text
            continue
        encoded = text.encode()
        if len(encoded) > left:
            if whole := encoded[: encoded.rfind(b"\n", 0, left) + 1]:
                yield whole.decode()
            return
        left -= len(encoded)
        yield text


def _followed(shown: list[str], reader: LogReader, job_id: str, after: Cursor, rank: int, query: Query) -> Texts:
    """Many lines at a time: what is yielded is written to the client by itself."""
    if shown:
        yield _text(shown)
    while True:
        with plane().db.read() as session:
            job = job_lookup.current(session, job_id)
            ended = job is None or job.state in TERMINAL
        lines = reader.read(after, rank=rank, limit=_BATCH, live=not ended)
        if lines:
            after = lines[-1].cursor
            yield _text([_line(line, query) for line in lines])
        elif ended:
            return
        else:
            yield None


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
