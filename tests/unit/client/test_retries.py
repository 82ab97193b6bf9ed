"""Which requests the client retries, which not, and what it raises."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from tests.doubles.scripted_server import Answer, Handler, ScriptedServer, drop, failure, running, stream, success
from tests.systems.servers import free_port
from trainyard._client import calls as _calls
from trainyard._client import events as _events
from trainyard._client import waiting as _waiting
from trainyard.client import (
    ApiError,
    Client,
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NoServer,
    NotFound,
    RetryPolicy,
    ServerError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)

JOB = {"job_id": "job-1", "name": "n", "status": "TRAINING"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(_calls, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(_events, "FIRST_PAUSE_SECONDS", 0.01)
    with running() as server:
        yield server


@pytest.fixture
def ours(server: ScriptedServer) -> Client:
    return Client(server.url, "the-key")


def keys(server: ScriptedServer) -> list[str | None]:
    return [headers.get("Idempotency-Key") for *_, headers, _ in server.seen]


def no_content(handler: Handler) -> None:
    handler.reply(204, b"")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Unauthenticated),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, InvalidRequest),
        (415, InvalidRequest),
        (416, InvalidRequest),
        (418, ApiError),
        (422, InvalidRequest),
        (429, LimitExceeded),
        (500, ServerError),
        (501, ServerError),
        (503, Unavailable),
    ],
)
def test_each_status_is_an_error_of_its_own(
    server: ScriptedServer, ours: Client, status: int, kind: type[ApiError]
) -> None:
    server.script(failure(status, {"code": "CODE", "message": "why"}))

    with pytest.raises(ApiError) as caught:
        ours.get("job-1")

    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code, caught.value.message) == (status, "CODE", "why")
    assert caught.value.request_id == "req_2"
    assert len(server.seen) == 1


@pytest.mark.parametrize("lost", [drop, failure(502, {}), failure(504, {})])
def test_reading_survives_a_broken_connection(server: ScriptedServer, ours: Client, lost: Answer) -> None:
    server.script(lost, lost, success(JOB))

    assert ours.get("job-1").status == "TRAINING"


def test_every_post_is_sent_again_under_its_own_key(server: ScriptedServer, ours: Client) -> None:
    server.script(drop, success(JOB), success(JOB), success({"key_id": "key-1", "key": "ty_1"}, 201))

    ours.checkpoint("job-1")
    ours.cancel("job-1")
    ours.keys.create(role="viewer")

    first, again, cancel, key = keys(server)
    assert first == again
    assert len({first, cancel, key, None}) == 4


def test_retries_are_bounded(server: ScriptedServer) -> None:
    server.script(drop)

    with pytest.raises(Unreachable):
        Client(server.url, patience=RetryPolicy(tries=4)).get("job-1")

    assert len(server.seen) == 4


@pytest.mark.parametrize(("retries", "pauses"), [(True, 2), (False, 0)])
def test_refused_connection_is_retried_unless_the_policy_says_no(
    monkeypatch: pytest.MonkeyPatch, *, retries: bool, pauses: int
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("trainyard._client.calls.time.sleep", slept.append)
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(NoServer) as caught:
        Client(url, patience=RetryPolicy(retries_refused=retries)).get("job-1")

    assert (caught.value.refused_here, len(slept)) == (True, pauses)


def test_server_elsewhere_and_a_broken_connection_are_always_retried(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    policy = RetryPolicy(retries_refused=False)
    server.script(drop, success(JOB))
    assert Client(server.url, patience=policy).get("job-1").status == "TRAINING"

    monkeypatch.setattr("trainyard._client.calls.time.sleep", slept.append)
    with pytest.raises(NoServer):
        Client("http://nowhere.invalid", patience=policy).get("job-1")

    assert len(slept) == 2


def test_a_header_says_when_to_ask_again_where_the_body_does_not(server: ScriptedServer, ours: Client) -> None:
    server.script(
        lambda handler: handler.reply(429, b"slow down", "text/plain", **{"Retry-After": "0"}),
        lambda handler: handler.reply(503, b"", "text/plain", **{"Retry-After": "0"}),
        success(JOB),
    )

    assert ours.get("job-1").status == "TRAINING"


def test_retry_after_of_the_server_is_waited_for(server: ScriptedServer, ours: Client) -> None:
    server.script(failure(429, {"code": "RATE_LIMITED", "message": "later", "retry_after": 1}), success(JOB))
    began = time.monotonic()

    ours.get("job-1")

    assert time.monotonic() - began >= 1


def test_a_busy_server_is_not_waited_for_beyond_the_patience(server: ScriptedServer) -> None:
    server.script(failure(429, {"code": "QUOTA_EXCEEDED", "message": "full", "retry_after": 2}))

    with pytest.raises(LimitExceeded, match="full"):
        Client(server.url, patience=RetryPolicy(seconds=1)).submit({})

    assert len(server.seen) == 1


def test_deletion_whose_answer_was_lost_is_done(server: ScriptedServer, ours: Client) -> None:
    server.script(drop, failure(404, {"code": "NOT_FOUND", "message": "no job"}))

    ours.delete("job-1", artifacts=True)

    assert [(method, path) for method, path, *_ in server.seen] == [("DELETE", "/v1/jobs/job-1?artifacts=true")] * 2


def test_deletion_of_what_is_not_there_is_refused(server: ScriptedServer, ours: Client) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": "no job"}))

    with pytest.raises(NotFound):
        ours.delete("job-1")


def test_change_sends_only_what_was_given(server: ScriptedServer, ours: Client) -> None:
    server.script(success(JOB))

    ours.change("job-1", priority=7)
    ours.change("job-1", labels={})

    assert [(method, json.loads(body)) for method, _, _, body in server.seen] == [
        ("PATCH", {"priority": 7}),
        ("PATCH", {"labels": {}}),
    ]


def test_dry_run_asks_for_one(server: ScriptedServer, ours: Client) -> None:
    server.script(success({"valid": True, "plan": {"queue": "default"}, "warnings": []}))

    assert ours.dry_run({"name": "a"})["plan"]["queue"] == "default"

    assert server.seen[0][1] == "/v1/jobs?dry_run=true"


def test_limits_of_a_queue_are_set_taken_away_or_left(server: ScriptedServer, ours: Client) -> None:
    server.script(success({"name": "q"}))

    ours.queues.change("q", max_running_jobs=2)
    ours.queues.change("q", paused=True, max_running_jobs=None)

    assert [json.loads(body) for *_, body in server.seen] == [
        {"max_running_jobs": 2},
        {"paused": True, "max_running_jobs": None},
    ]


def test_project_is_chosen_for_every_request(server: ScriptedServer) -> None:
    server.script(success(JOB))

    Client(server.url, "the-key", project="team-a").get("job-1")

    assert server.seen[0][2]["X-Project"] == "team-a"


def test_a_full_server_is_asked_for_a_stream_again(server: ScriptedServer, ours: Client) -> None:
    server.script(
        failure(429, {"code": "RATE_LIMITED", "message": "all streams are in use", "retry_after": 0}),
        stream('id: 1\ndata: {"n": 1}\n\ndata: [DONE]\n\n'),
    )

    assert [event.data["n"] for event in ours.follow_metrics("job-1", names=["loss"])] == [1]

    assert server.seen[1][1] == "/v1/jobs/job-1/metrics/stream?names=loss"


def test_a_quiet_stream_lives_as_long_as_the_server_says_so(server: ScriptedServer) -> None:
    quiet = stream(": open\n\n: heartbeat\n\n")
    server.script(*[quiet] * 8, stream("data: [DONE]\n\n"))

    assert list(Client(server.url, patience=RetryPolicy(seconds=0.1)).follow_events("job-1")) == []

    assert len(server.seen) == 9


def test_a_stream_that_opens_but_sends_nothing_is_given_up(server: ScriptedServer) -> None:
    server.script(stream(": open\n\n"))

    with pytest.raises(Unreachable, match="could not be continued"):
        list(Client(server.url, patience=RetryPolicy(seconds=0.1)).follow_events("job-1"))


class Clock:
    """A clock that advances only during sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("timeout", "poll"), [(3.0, 2.0), (0.5, 60.0), (0.0, 1.0), (4.0, 2.0)])
def test_waiting_ends_when_its_time_is_over(
    server: ScriptedServer, ours: Client, monkeypatch: pytest.MonkeyPatch, timeout: float, poll: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(_waiting, "time", clock)
    server.script(success(JOB))

    with pytest.raises(TimeoutError, match="has not ended within"):
        ours.wait("job-1", timeout_seconds=timeout, poll_seconds=poll)

    assert clock.now == timeout


def test_job_that_ends_during_the_last_pause_is_seen(
    server: ScriptedServer, ours: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_waiting, "time", Clock())
    server.script(success(JOB), success({**JOB, "status": "COMPLETED"}))

    assert ours.wait("job-1", timeout_seconds=0.5, poll_seconds=60.0).status == "COMPLETED"


def test_a_silent_server_does_not_prolong_the_wait(
    server: ScriptedServer, ours: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_waiting, "LAST_POLL_SECONDS", 0.05)
    given_up = threading.Event()

    def answer_late(handler: Handler) -> None:
        (drop if given_up.wait(10.0) else success({**JOB, "status": "COMPLETED"}))(handler)

    server.script(answer_late)

    with pytest.raises(TimeoutError):
        ours.wait("job-1", timeout_seconds=0.1)
    given_up.set()


def test_wait_survives_many_lost_connections(
    server: ScriptedServer, ours: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_waiting, "WAIT_RETRY_POLICY", RetryPolicy(tries=1000, seconds=30.0))
    server.script(*[drop] * 6, success({**JOB, "status": "FAILED"}))

    assert ours.wait("job-1", poll_seconds=0.01).status == "FAILED"
