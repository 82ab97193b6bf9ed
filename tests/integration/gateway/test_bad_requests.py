"""Requests that are refused before a replica gets them."""

from collections.abc import Callable

import pytest
import redis

from app.services.access import api_keys
from app.services.access.api_keys import ADMINISTRATOR
from tests.systems.gateways import GatewaySite
from tests.systems.system import wait_for

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"not json", None),
        (b"[1]", None),
        ({"model": "support"}, "messages"),
        ({"model": "support", "messages": []}, "messages"),
        ({"model": "support", "messages": [{"role": "user", "content": "x"}], "temperature": 3}, "temperature"),
    ],
)
def test_bodies_that_are_none_are_refused_with_the_field(site: GatewaySite, body: object, param: str | None) -> None:
    answer = site.ask("POST", CHAT, body)

    assert answer.status == 400, answer.raw
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == param


def test_other_media_types_are_refused(site: GatewaySite) -> None:
    assert site.ask("POST", CHAT, {}, **{"Content-Type": "text/plain"}).status == 415


def test_a_body_over_the_limit_is_refused_in_words(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_GATEWAY_MAX_BODY_BYTES="1000").serve()

    slightly, far = (site.ask("POST", CHAT, {"model": "x" * size}) for size in (2000, 3500))

    assert (slightly.status, far.status) == (413, 413)
    assert "1000 bytes" in slightly.error["message"]
    assert site.ask("POST", CHAT, {"model": "x"}).status == 400


def test_only_what_trusted_proxies_add_says_who_asks(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_API_PROXIES="1", TRAINYARD_API_WRONG_KEYS_BURST="1").serve()

    answers = [
        site.ask(
            "POST", CHAT, {}, key="wrong", **{"X-Real-Ip": f"9.9.9.{at}", "X-Forwarded-For": f"8.8.8.{at}, 7.7.7.7"}
        )
        for at in range(10)
    ]

    # On a slow machine there is time to allow another guess in between.
    assert 429 in [answer.status for answer in answers]


def test_bodies_that_wait_to_be_read_are_bounded(
    make_site: Callable[..., GatewaySite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.gateway.server.MOST_BODIES", 1)
    site = make_site(TRAINYARD_GATEWAY_MAX_BODY_BYTES="1000").serve()
    engine, place = site.engine()
    site.replica(site.service(), place)

    with site.asking("POST", CHAT, {"model": "support", "messages": [{"role": "user", "content": "hang" + " " * 800}]}):
        while not engine.open:
            pass
        refused = site.chat("say " + "x" * 300)

    assert refused.status == 503
    assert "bytes" in refused.error["message"]


def test_a_body_over_the_limit_without_a_key_is_refused_for_the_key(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_GATEWAY_MAX_BODY_BYTES="1000").serve()

    assert site.ask("POST", CHAT, {"model": "x" * 2000}, key="wrong").status == 401


def test_a_key_has_so_many_requests_a_minute(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_GATEWAY_REQUESTS_PER_MINUTE="2").serve()
    _, place = site.engine()
    site.replica(site.service(), place)

    answers = [site.chat("say yes") for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit-requests"] == "2"
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["1", "0", "0"]
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 20


@pytest.mark.long
def test_other_gateways_count_and_a_limit_of_the_key_takes_the_place_of_the_settings(
    make_site: Callable[..., GatewaySite], redis_url: str
) -> None:
    site = make_site(TRAINYARD_GATEWAY_REQUESTS_PER_MINUTE="9", TRAINYARD_BROKER_URL=redis_url).serve()
    _, place = site.engine()
    site.replica(site.service(), place)
    key_id = api_keys.authenticate(site.db, site.key).key_id
    assert site.chat("say yes").status == 200

    bucket = f"trainyard:rate:gateway:requests:{key_id}"
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        wait_for(lambda: client.keys() == [bucket], seconds=10, what="others to be notified")
        client.hset(bucket, "level", "-5")  # as if they had used it up
    wait_for(lambda: site.chat("say yes").status == 429, seconds=10, what="what others used to count")

    api_keys.change(site.db, ADMINISTRATOR, key_id, {"requests_per_minute": 0})
    wait_for(lambda: site.chat("say yes").status == 200, seconds=10, what="the key's own limit")


def test_a_key_has_so_many_tokens_a_minute(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_GATEWAY_TOKENS_PER_MINUTE="4").serve()
    _, place = site.engine()
    site.replica(site.service(), place)

    answers = [site.chat("say one two three", stream=stream) for stream in (True, False)]

    assert [answer.status for answer in answers] == [200, 429]
    assert "4 tokens a minute" in answers[1].error["message"]


def test_more_requests_than_may_be_open_are_refused(make_site: Callable[..., GatewaySite]) -> None:
    site = make_site(TRAINYARD_GATEWAY_MAX_REQUESTS="1").serve()
    engine, place = site.engine()
    site.replica(site.service(), place)
    body = {"model": "support", "messages": [{"role": "user", "content": "hang"}]}

    with site.asking("POST", CHAT, body):
        while not engine.open:
            pass
        answer = site.chat("say yes")

    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
