"""A stream that is cut off after every frame, while there is more to come: nothing is lost or sent twice."""

import dataclasses
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.http.slots import StreamPace
from app.models import Job
from app.services.lifecycle import transitions
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from app.storage.log_writer import LogWriter
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.log_blocks import block
from tests.systems.apps import Api

COUNT = 20


def held_job(api: Api) -> str:
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        return str(job.id)


def end(api: Api, job_id: str) -> None:
    with api.db.write() as session:
        transitions.transition(session, session.get_one(Job, job_id), JobState.CANCELLED, actor="test")


def write_event(api: Api, job_id: str, n: int) -> None:
    with api.db.write() as session:
        transitions.record_event(session, job_id, EventType.WARNING, message=str(n))


def write_point(api: Api, job_id: str, n: int) -> None:
    # Every third step is done again, as after a resume: its point comes again with the new value.
    step = n - 1 if n % 3 == 0 else n
    point = MetricValue(name="loss", step=step, at=datetime(2026, 1, 1, tzinfo=UTC), value=float(n))
    stored_metrics.store(
        api.db, job_id=job_id, attempt=1, fence=1, reports=TelemetryReports(progress=None, points=(point,))
    )


def log_writer(api: Api, job_id: str) -> Callable[[Api, str, int], None]:
    writer = LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1)
    return lambda _api, _job, n: writer.append([block(n, str(n))])


def cut_off_after_each(api: Api, path: str) -> list[tuple[str, Any]]:
    """(id, data) of all frames, each got over a connection of its own."""
    found: list[tuple[str, Any]] = []
    while True:
        last = {"Last-Event-ID": found[-1][0]} if found else {}
        answer = api.call("GET", path, headers={"Accept": "text/event-stream", **last})
        frame = next(piece for piece in map(_text, answer.response) if not piece.startswith(":"))
        answer.close()
        if frame == "data: [DONE]\n\n":
            return found
        first, second = frame.strip().split("\n")
        found.append((first.removeprefix("id: "), json.loads(second.removeprefix("data: "))))


def _text(piece: str | bytes) -> str:
    return piece if isinstance(piece, str) else piece.decode()


@pytest.mark.parametrize(
    ("stream", "content"),
    [
        ("events", lambda data: data["message"] or data["to_status"]),
        ("metrics/stream", lambda data: str(int(data["value"]))),
        ("logs", lambda data: data["line"]),
    ],
)
def test_every_frame_comes_once_however_often_the_stream_breaks(
    api: Api, stream: str, content: Callable[[dict[str, Any]], str]
):
    backend = api.app.extensions["trainyard"]
    fast = StreamPace(poll_seconds=0.002, heartbeat_seconds=0.05, recheck_seconds=5.0)
    api.app.extensions["trainyard"] = dataclasses.replace(backend, pace=fast)
    job_id = held_job(api)
    write = {"events": write_event, "metrics/stream": write_point, "logs": log_writer(api, job_id)}[stream]

    def write_all() -> None:
        for n in range(1, COUNT + 1):
            write(api, job_id, n)
        end(api, job_id)

    thread = threading.Thread(target=write_all)
    thread.start()
    found = cut_off_after_each(api, f"/v1/jobs/{job_id}/{stream}")
    thread.join()

    seen = [content(data) for _, data in found]
    assert len({frame_id for frame_id, _ in found}) == len(found)
    # Of a point that was replaced before it was sent, only the new value is there.
    replaced = {str(n - 1) for n in range(1, COUNT + 1) if n % 3 == 0} if stream == "metrics/stream" else set()
    ending = ["CANCELLED"] if stream == "events" else []
    expected = [str(n) for n in range(1, COUNT + 1)] + ending
    assert [value for value in seen if value not in replaced] == [value for value in expected if value not in replaced]
    assert len(seen) == len(set(seen))
