"""Server-sent events: order, ids to resume from, the end, and the limits."""

import dataclasses
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.domain.lifecycle.states import JobState
from app.http.slots import Slots, StreamPace
from app.models import Job
from app.security.permissions import Role
from app.services.access import api_keys
from app.services.access.api_keys import ADMINISTRATOR
from app.services.lifecycle import transitions
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from app.storage.log_writer import LogWriter
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.log_blocks import block
from tests.systems.apps import Api
from trainyard.protocol.messages import Progress

SSE = {"Accept": "text/event-stream"}


def open_stream(api: Api, path: str, *, key: str | None = None, last: str = "") -> TestResponse:
    headers = {**SSE, **({"Last-Event-ID": last} if last else {})}
    return api.call("GET", path, key=key, headers=headers)


def frames(text: str) -> list[tuple[str, Any]]:
    """(id, data) of the events, up to [DONE], which must be the last."""
    blocks = [
        dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        for block in text.strip().split("\n\n")
    ]
    blocks = [block for block in blocks if block]
    assert blocks[-1] == {"data": "[DONE]"}
    return [(block["id"], json.loads(block["data"])) for block in blocks[:-1]]


def pace(api: Api, **changes: Any) -> None:
    """Faster than a person would want it, and other limits."""
    backend = api.app.extensions["trainyard"]
    faster = StreamPace(poll_seconds=0.01, heartbeat_seconds=0.05, recheck_seconds=0.05)
    api.app.extensions["trainyard"] = dataclasses.replace(backend, pace=faster, **changes)


def end_job(api: Api, job_id: str) -> None:
    with api.db.write() as session:
        transitions.transition(session, session.get_one(Job, job_id), JobState.CANCELLED, actor="test")


def test_events_stream_ends_when_the_job_has_ended_and_goes_on_after_an_id(api: Api):
    job_id = api.submit()
    api.post(f"/v1/jobs/{job_id}/cancel")

    everything = frames(open_stream(api, f"/v1/jobs/{job_id}/events").get_data(as_text=True))
    rest = frames(open_stream(api, f"/v1/jobs/{job_id}/events", last="1").get_data(as_text=True))
    nothing = frames(open_stream(api, f"/v1/jobs/{job_id}/events", last="2").get_data(as_text=True))

    assert [frame_id for frame_id, _ in everything] == ["1", "2"]
    assert [(data["from_status"], data["to_status"]) for _, data in everything] == [
        (None, "PENDING"),
        ("PENDING", "CANCELLED"),
    ]
    assert rest == everything[1:]
    assert nothing == []


def test_events_stream_goes_on_while_the_job_lives(api: Api):
    pace(api)
    job_id = api.submit()
    answer = open_stream(api, f"/v1/jobs/{job_id}/events")
    pieces: Iterator[Any] = iter(answer.response)

    first = [next(pieces) for _ in range(3)]
    end_job(api, job_id)
    rest = list(pieces)
    answer.close()

    assert any("job.submitted" in text(piece) for piece in first)
    assert any(text(piece).startswith(":") for piece in first[1:])  # a comment, because nothing happened
    assert "CANCELLED" in "".join(map(text, rest))
    assert text(rest[-1]) == "data: [DONE]\n\n"


def test_events_are_json_unless_a_stream_is_requested(api: Api):
    job_id = api.submit()

    assert api.get(f"/v1/jobs/{job_id}/events")["total_count"] == 1
    assert api.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "*/*"})["total_count"] == 1


def test_unknown_last_event_id_is_refused(api: Api):
    job_id = api.submit()

    answers = [
        open_stream(api, f"/v1/jobs/{job_id}/{path}", last=last).status_code
        for path in ("events", "metrics/stream", "logs")
        for last in ("x", "-1", "9" * 40, "1:2:3:4:5:6" * 20)
    ]

    assert set(answers) == {400}


def slots(limit: int, own_limit: int) -> Slots:
    return Slots(limit, own_limit, what="streams", otherwise="retry later")


def test_one_project_leaves_streams_to_others(api: Api):
    pace(api, streams=slots(3, 2))
    job_id = api.submit()
    path = f"/v1/jobs/{job_id}/events"
    of_project = api.make_key(Role.VIEWER, name="watcher")

    mine = [open_stream(api, path, key=of_project) for _ in range(3)]
    other = open_stream(api, path)
    for each in (other, *reversed(mine)):  # the test client has its contexts on a stack
        each.close()

    assert [each.status_code for each in mine] == [200, 200, 429]
    assert "all 2 streams that one project may have on this server" in api.problem(mine[2], 429)["message"]
    assert other.status_code == 200


def test_streams_are_limited_and_given_back(api: Api):
    pace(api, streams=slots(1, 1))
    job_id = api.submit()
    path = f"/v1/jobs/{job_id}/events"

    first = open_stream(api, path)
    refused = open_stream(api, path)
    plain = api.call("GET", path)
    first.close()
    again = open_stream(api, path)
    again.close()

    assert api.problem(refused, 429)["retry_after"] > 0
    assert (plain.status_code, again.status_code) == (200, 200)


def test_stream_ends_when_its_key_is_revoked(api: Api):
    pace(api)
    key = api.make_key(Role.VIEWER, name="watcher")
    row = next(row for row in api.get("/v1/keys")["keys"] if row["name"] == "watcher")
    answer = open_stream(api, f"/v1/jobs/{api.submit()}/events", key=key)
    pieces: Iterator[Any] = iter(answer.response)
    next(pieces)

    api_keys.revoke(api.db, ADMINISTRATOR, row["key_id"])
    rest = "".join(map(text, pieces))
    answer.close()

    assert "event: error" in rest
    assert "AUTH_TOKEN_INVALID" in rest
    assert "[DONE]" not in rest


def trained_job(api: Api, *points: tuple[str, int, float]) -> str:
    with api.db.write() as session:
        job = make_job(session)
        lease = make_attempt(session, job, make_node(session))
        job_id, fence = job.id, lease.fence
    at = [datetime(2026, 1, 1, 0, 0, step, tzinfo=UTC) for _, step, _ in points]
    stored_metrics.store(
        api.db,
        job_id=job_id,
        attempt=1,
        fence=fence,
        reports=TelemetryReports(
            progress=Progress(step=2, total_steps=4, epoch=0.5, total_epochs=1.0, tokens=10),
            eta_seconds=3.0,
            points=[MetricValue(name=n, step=s, at=a, value=v) for (n, s, v), a in zip(points, at, strict=True)],
        ),
    )
    return job_id


@pytest.mark.both_databases
def test_metrics_are_read_and_followed(api: Api):
    job_id = trained_job(api, ("loss", 1, 2.0), ("loss", 2, float("nan")), ("lr", 2, 0.1))
    end_job(api, job_id)

    metrics = api.get(f"/v1/jobs/{job_id}/metrics?names=loss")
    followed = frames(open_stream(api, f"/v1/jobs/{job_id}/metrics/stream").get_data(as_text=True))
    rest = frames(open_stream(api, f"/v1/jobs/{job_id}/metrics/stream", last=followed[0][0]).get_data(as_text=True))

    assert metrics["latest"] == {"loss": "NaN", "lr": 0.1}
    assert metrics["series"] == {"loss": [[1, "2026-01-01T00:00:01.000Z", 2.0], [2, "2026-01-01T00:00:02.000Z", "NaN"]]}
    assert metrics["checkpoints"] == []
    assert [(data["name"], data["step"], data["value"]) for _, data in followed] == [
        ("loss", 1, 2.0),
        ("loss", 2, "NaN"),
        ("lr", 2, 0.1),
    ]
    assert rest == followed[1:]
    assert api.get(f"/v1/jobs/{job_id}/metrics?since_step=1&names=loss,lr&names=x")["series"].keys() == {"loss", "lr"}


def test_job_shows_the_newest_progress(api: Api):
    job = api.get(f"/v1/jobs/{trained_job(api, ('loss', 2, 1.5))}")

    assert (job["progress"], job["current_step"], job["total_steps"]) == (0.5, 2, 4)
    assert (job["eta_seconds"], job["latest_metrics"]) == (3.0, {"loss": 1.5})


def logged_job(api: Api) -> str:
    job_id = api.submit()
    writer = LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1)
    writer.append([block(n, f"line {n} \ud800", rank=n % 2, at="2026-01-01T00:00:00.000Z") for n in range(1, 7)])
    return job_id


def test_logs_are_read_as_json(api: Api):
    job_id, accept = logged_job(api), {"Accept": "application/json"}

    tail = api.get(f"/v1/jobs/{job_id}/logs?tail=2&follow=false", headers=accept)["lines"]
    of_rank = api.get(f"/v1/jobs/{job_id}/logs?rank=1", headers=accept)["lines"]

    assert [line["id"] for line in tail] == ["1:5", "1:6"]
    assert tail[0] == {
        "id": "1:5",
        "attempt": 1,
        "n": 5,
        "at": "2026-01-01T00:00:00.000Z",
        "rank": 1,
        "line": "line 5 \ud800",
    }
    assert [line["n"] for line in of_rank] == [1, 3, 5]


def test_logs_are_followed_from_any_line(api: Api):
    job_id = logged_job(api)
    path = f"/v1/jobs/{job_id}/logs"

    def read(query: str = "", last: str = "") -> list[str]:
        return [
            frame_id for frame_id, _ in frames(open_stream(api, f"{path}?{query}", last=last).get_data(as_text=True))
        ]

    assert read("follow=false&tail=2") == ["1:5", "1:6"]
    end_job(api, job_id)
    assert read() == [f"1:{n}" for n in range(1, 7)]
    assert read("rank=0") == ["1:2", "1:4", "1:6"]
    assert read("tail=0") == []
    assert read("tail=3", last="1:2") == ["1:3", "1:4", "1:5", "1:6"]
    assert read(last="1:6") == []


def test_lines_of_a_node_that_stores_them_later_are_followed_too(api: Api):
    job_id, storage = api.submit(), api.app.extensions["trainyard"].plane.storage
    nodes = [LogWriter(storage, job_id, 1) for _ in range(2)]
    path = f"/v1/jobs/{job_id}/logs?follow=false"

    def read(query: str = "", last: str = "") -> list[tuple[str, str]]:
        text = open_stream(api, f"{path}{query}", last=last).get_data(as_text=True)
        return [(frame_id, data["line"]) for frame_id, data in frames(text)]

    nodes[0].append([block(1, "a", "b", "c", rank=0, step=2)])
    assert read() == [("1:1,0", "a"), ("1:3,0", "b"), ("1:5,0", "c")]
    assert read("&tail=1") == [("1:5,0", "c")]
    nodes[1].append([block(2, "x", rank=1, step=2)])

    assert read(last="1:5,0") == [("1:5,2", "x")]
    assert read(last="1:1,0") == [("1:1,2", "x"), ("1:3,2", "b"), ("1:5,2", "c")]
    assert read(last="1:5,2") == []
    assert read(last="1:3") == [("1:5,3", "c")]  # of an earlier release: one number for all nodes


def test_log_lines_arrive_while_they_are_written(api: Api):
    pace(api)
    job_id = api.submit()
    writer = LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1)

    def write() -> None:
        for n in range(1, 31):
            writer.append([block(n, f"line {n}")])
        end_job(api, job_id)

    thread = threading.Thread(target=write)
    thread.start()
    got = frames(open_stream(api, f"/v1/jobs/{job_id}/logs").get_data(as_text=True))
    thread.join()

    assert [data["n"] for _, data in got] == list(range(1, 31))


def text(piece: str | bytes) -> str:
    return piece.decode() if isinstance(piece, bytes) else piece
