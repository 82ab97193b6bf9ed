"""Limits shared through a real Redis, what the API answers beyond them, and what happens when Redis goes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database.engine import Database, make_engine
from app.domain.errors import LimitExceeded
from app.domain.token_bucket import Draw, Rate
from app.security.late_buckets import LateBuckets
from app.security.permissions import Role
from app.security.rate_limits import RateLimit
from app.security.shared_buckets import SharedBuckets
from tests.systems.apps import Api
from tests.systems.servers import RedisServer

# So slow that no token comes while a test runs.
RATE = Rate(0.001, 20)


@pytest.fixture
def db(sqlite_url: str) -> Iterator[Database]:
    bound = Database().bind(make_engine(sqlite_url))
    yield bound
    bound.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may end."""
    server = RedisServer()
    server.start()
    yield server
    server.close()


def served(limit: RateLimit, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            limit.check("key-1", message="too fast")
        except LimitExceeded:
            continue
        count += 1
    return count


def test_processes_share_one_bucket(redis_url: str) -> None:
    first, second = RateLimit(RATE, SharedBuckets(redis_url)), RateLimit(RATE, LateBuckets(redis_url))

    assert served(first, 15) == 15
    assert served(second, 15) == 5
    assert served(first, 1) == 0


def test_the_script_counts_as_the_domain_does(redis_url: str, redis_server: RedisServer) -> None:
    buckets, rate = SharedBuckets(redis_url), Rate(0.1, 2)

    drawn = [buckets.draw("key-1", rate, 1), buckets.draw("key-1", rate, 5), buckets.draw("key-1", rate, 1)]

    assert drawn[:2] == [Draw(1), Draw(1)]
    assert drawn[2].granted == 0
    assert 9.0 < drawn[2].wait_seconds <= 10.0
    with redis_server.client() as client:
        assert client.keys("trainyard:rate:*") == ["trainyard:rate:key-1"]
        assert 20_000 < int(client.pttl("trainyard:rate:key-1")) <= 21_000


def test_tokens_come_back_with_the_servers_time(redis_url: str, redis_server: RedisServer) -> None:
    buckets, rate = SharedBuckets(redis_url), Rate(10.0, 5)
    buckets.draw("key-1", rate, 5)
    with redis_server.client() as client:
        # As if it had been two tenths of a second earlier.
        client.hincrbyfloat("trainyard:rate:key-1", "at", -0.2)

    assert 2 <= buckets.draw("key-1", rate, 5).granted < 5


def test_when_redis_goes_each_process_counts_its_own_and_shares_again_when_it_is_back(own_redis: RedisServer) -> None:
    now = [100.0]
    buckets = SharedBuckets(own_redis.url, clock=lambda: now[0])
    limit = RateLimit(RATE, buckets, clock=lambda: now[0])
    assert served(limit, 20) == 20
    own_redis.stop()
    now[0] += 20_000.0

    assert served(limit, 30) == 20
    own_redis.start()
    now[0] += 20_000.0

    assert served(limit, 30) == 20
    with own_redis.client() as client:
        assert client.exists("trainyard:rate:key-1")


def test_rate_limited_key_gets_the_time_to_retry_after(db: Database, tmp_path: Path, redis_url: str) -> None:
    limits = {"TRAINYARD_API_RATE_PER_SECOND": "0.1", "TRAINYARD_API_RATE_BURST": "3"}
    api = Api(db, tmp_path, TRAINYARD_BROKER_URL=redis_url, **limits)
    other = api.make_key(Role.VIEWER)

    answers = [api.call("GET", "/v1/jobs") for _ in range(4)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    problem = api.problem(answers[3], 429)
    assert (problem["code"], problem["retry_after"]) == ("RATE_LIMITED", 10)
    assert answers[3].headers["Retry-After"] == "10"
    assert api.call("GET", "/v1/jobs", key=other).status_code == 200
    assert api.call("POST", "/v1/jobs", json={}).status_code == 429


def test_health_and_documentation_are_never_limited(db: Database, tmp_path: Path) -> None:
    api = Api(db, tmp_path, TRAINYARD_API_RATE_PER_SECOND="0.1", TRAINYARD_API_RATE_BURST="1")
    api.call("GET", "/v1/jobs")

    statuses = {path: api.call("GET", path).status_code for path in ("/health", "/v1/openapi.json", "/v1/docs")}

    assert statuses == {"/health": 200, "/v1/openapi.json": 200, "/v1/docs": 200}


def test_wrong_keys_of_an_address_are_limited_and_good_ones_go_on(db: Database, tmp_path: Path) -> None:
    limits = {"TRAINYARD_API_WRONG_KEYS_PER_SECOND": "0.1", "TRAINYARD_API_WRONG_KEYS_BURST": "2"}
    api = Api(db, tmp_path, **limits)

    wrong = [api.call("GET", "/v1/jobs", key="nonsense").status_code for _ in range(4)]

    assert wrong == [401, 401, 429, 429]
    assert api.call("GET", "/v1/jobs").status_code == 200
    elsewhere = api.call("GET", "/v1/jobs", key="nonsense", environ_overrides={"REMOTE_ADDR": "10.0.0.2"})
    assert elsewhere.status_code == 401


@pytest.mark.parametrize(
    ("addresses", "statuses"),
    [
        (["2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"], [401, 429, 401]),
        (["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"], [401, 429, 401]),
    ],
)
def test_addresses_of_one_network_count_as_one(
    db: Database, tmp_path: Path, addresses: list[str], statuses: list[int]
) -> None:
    limits = {"TRAINYARD_API_WRONG_KEYS_PER_SECOND": "0.1", "TRAINYARD_API_WRONG_KEYS_BURST": "1"}
    api = Api(db, tmp_path, **limits)

    answers = [
        api.call("GET", "/v1/jobs", key="nonsense", environ_overrides={"REMOTE_ADDR": address}) for address in addresses
    ]

    assert [answer.status_code for answer in answers] == statuses


def test_the_address_is_the_one_that_a_configured_proxy_saw(db: Database, tmp_path: Path) -> None:
    limits = {"TRAINYARD_API_WRONG_KEYS_PER_SECOND": "0.1", "TRAINYARD_API_WRONG_KEYS_BURST": "1"}
    api = Api(db, tmp_path, TRAINYARD_API_PROXIES="1", **limits)

    def wrong(forwarded: str) -> int:
        return api.call("GET", "/v1/jobs", key="nonsense", headers={"X-Forwarded-For": forwarded}).status_code

    assert [wrong("192.0.2.1"), wrong("192.0.2.1"), wrong("192.0.2.2")] == [401, 429, 401]
    # What a client wrote itself stands before what the proxy wrote, and is not believed.
    assert wrong("198.51.100.7, 192.0.2.1") == 429


def test_without_a_configured_proxy_no_client_chooses_its_address(db: Database, tmp_path: Path) -> None:
    limits = {"TRAINYARD_API_WRONG_KEYS_PER_SECOND": "0.1", "TRAINYARD_API_WRONG_KEYS_BURST": "1"}
    api = Api(db, tmp_path, **limits)

    statuses = [
        api.call("GET", "/v1/jobs", key="nonsense", headers={"X-Forwarded-For": f"192.0.2.{n}"}).status_code
        for n in range(2)
    ]

    assert statuses == [401, 429]
