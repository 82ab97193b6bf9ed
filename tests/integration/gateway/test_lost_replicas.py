"""Replicas that are not there yet, or not any more: no request that was let in is forgotten."""

import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from sqlalchemy.exc import OperationalError

from app.domain.serving.states import ServiceState
from tests.systems.gateways import GatewaySite
from tests.systems.system import wait_for

BODY = {"model": "support", "messages": [{"role": "user", "content": "say yes"}]}
HANG = {"model": "support", "messages": [{"role": "user", "content": "hang"}]}
CHAT = "/v1/chat/completions"


def test_a_request_waits_for_a_replica(site: GatewaySite) -> None:
    service_id = site.service()
    engine, place = site.engine()

    with site.asking("POST", CHAT, BODY) as connection:
        time.sleep(0.3)
        site.replica(service_id, place)
        answer = connection.getresponse()
        answer.read()

    assert answer.status == 200
    assert len(engine.requests) == 1


def test_a_stream_that_waits_gets_comments_with_the_reason(site: GatewaySite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gateway.dispatch.FIRST_COMMENT_SECONDS", 0.1)
    service_id = site.service(limits={"cold_start_seconds": 1})
    site.set_service(service_id, pending_reason="needs 1 h100; free: 0")

    answer = site.chat("say yes", stream=True)

    assert answer.status == 200
    assert answer.comments == [": needs 1 h100; free: 0"]
    assert answer.events[-1]["error"]["message"].endswith("1 s: needs 1 h100; free: 0")


def test_a_request_waits_as_long_as_the_service_says_and_is_refused_with_the_reason(site: GatewaySite) -> None:
    service_id = site.service(limits={"cold_start_seconds": 1})
    site.set_service(service_id, pending_reason="needs 1 h100; free: 0")

    answer = site.chat("say yes")

    assert answer.status == 503
    assert "needs 1 h100; free: 0" in answer.error["message"]
    assert answer.headers["Retry-After"] == "10"


def test_no_more_requests_wait_than_the_service_says(site: GatewaySite) -> None:
    site.service(limits={"max_waiting": 1, "cold_start_seconds": 10})

    with site.asking("POST", CHAT, BODY):
        time.sleep(0.3)
        answer = site.chat("say yes")

    assert answer.status == 429
    assert "1 requests already wait" in answer.error["message"]


def test_what_has_not_begun_to_be_answered_goes_to_another_replica(site: GatewaySite) -> None:
    service_id = site.service()
    (first, one), (second, other) = site.engine("first"), site.engine("second")
    replica = site.replica(service_id, one)

    with site.asking("POST", CHAT, HANG) as connection:
        wait_for(lambda: len(first.requests) == 1, seconds=10, what="the first replica has it")
        site.replica(service_id, other, number=1)
        replica.kill()
        wait_for(lambda: len(second.requests) == 1, seconds=10, what="the second replica has it")
        connection.close()

    wait_for(lambda: second.hung_up == 1, seconds=10, what="it is cancelled there")


def test_a_request_that_ends_replicas_ends_only_three(site: GatewaySite) -> None:
    service_id = site.service()
    engine, place = site.engine()
    site.replica(service_id, place)

    answer = site.chat("die now")

    assert (answer.status, answer.error["code"].lower()) == (503, "replica_lost")
    assert len(engine.requests) == 3


@pytest.mark.long
def test_an_answer_that_breaks_off_is_never_cut_silently(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)

    stream, whole = site.chat("cut one two", stream=True), site.chat("cut one two")

    assert [event["choices"][0]["delta"]["content"] for event in stream.events[:-1]] == ["one", "two"]
    assert stream.events[-1]["error"]["message"].startswith("the replica ended before")
    assert whole.status == 503


def test_a_replica_that_is_full_leaves_the_request_to_another_one(site: GatewaySite) -> None:
    service_id = site.service(limits={"cold_start_seconds": 1})
    _, place = site.engine()
    site.replica(service_id, place)

    answer = site.chat("full")

    assert answer.status == 503


def test_a_service_without_patience_is_answered_by_the_replica_there_is(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(limits={"cold_start_seconds": 0}), place)

    assert site.chat("say yes").status == 200


def test_an_answer_that_is_too_large_is_refused_and_no_replica_counts_as_lost(
    site: GatewaySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.gateway.exchange.MAX_ANSWER_BYTES", 1 << 20)
    engine, place = site.engine()
    site.replica(site.service(), place)

    answer = site.chat("say " + "x" * (2 << 20))

    assert answer.status == 400
    assert "base64" in answer.error["message"]
    assert len(engine.requests) == 1
    assert site.chat("say yes").status == 200


def test_what_a_client_that_hangs_up_was_sent_counts(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_GATEWAY_TOKENS_PER_MINUTE="3").serve()
    engine, place = site.engine(pause_seconds=0.1)
    site.replica(site.service(), place)

    with site.asking("POST", CHAT, _streamed("say " + "x " * 200)) as connection:
        connection.getresponse().read(400)
    wait_for(lambda: engine.hung_up == 1, seconds=10, what="the engine notices")

    assert site.chat("say yes").status == 429


def test_a_stale_endpoint_is_not_asked(site: GatewaySite) -> None:
    service_id = site.service(limits={"cold_start_seconds": 1})
    engine, place = site.engine()
    site.replica(service_id, place).set_job(fence=8)

    assert site.chat("say yes").status == 503
    assert engine.requests == []


def test_a_relay_of_another_attempt_refuses(make_site: Callable[..., GatewaySite]) -> None:
    """The token has the fencing token in it: rows that claim another one do not open the relay."""
    site = make_site().serve()
    service_id = site.service(limits={"cold_start_seconds": 1})
    engine, place = site.engine()
    replica = site.replica(service_id, place)
    replica.set_job(fence=8)
    replica.set_replica(fence=8)

    assert site.chat("say yes").status == 503
    assert engine.requests == []


@pytest.mark.parametrize(("status", "expected"), [(ServiceState.PAUSED, 409), (ServiceState.ENDING, 404)])
def test_a_request_that_waits_is_refused_when_the_service_closes(
    site: GatewaySite, status: ServiceState, expected: int
) -> None:
    service_id = site.service()

    with site.asking("POST", CHAT, BODY) as connection:
        time.sleep(0.3)
        site.set_service(service_id, status=status)
        answer = connection.getresponse()
        answer.read()

    assert answer.status == expected


def test_a_client_that_hangs_up_ends_its_request_at_the_engine(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)

    with site.asking("POST", CHAT, HANG):
        wait_for(lambda: engine.open == 1, seconds=10, what="the engine has it")

    wait_for(lambda: engine.hung_up == 1, seconds=10, what="the engine notices")


def test_while_the_database_is_away_requests_are_refused_for_now_and_then_answered(
    site: GatewaySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)

    with monkeypatch.context() as patched:
        patched.setattr(site.db, "snapshot", _away)
        refused = site.chat("say yes")
    answered = site.chat("say yes")

    assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
    assert answered.status == 200


def _streamed(text: str) -> dict[str, Any]:
    return {"model": "support", "messages": [{"role": "user", "content": text}], "stream": True}


def _away() -> NoReturn:
    raise OperationalError("SELECT 1", None, OSError("the server has gone away"))


def test_a_stream_of_no_events_is_ended_with_an_error(site: GatewaySite) -> None:
    service_id = site.service()
    engine, place = site.engine()
    site.replica(service_id, place)

    answer = site.chat("babble", stream=True)

    assert answer.events[0]["choices"]
    assert answer.events[-1]["error"]["code"].lower() == "replica_lost"
    wait_for(lambda: engine.hung_up == 1, seconds=10, what="the connection is closed")
