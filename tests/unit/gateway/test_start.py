"""What a gateway refuses at its start, before a request meets it."""

import pytest

from app.gateway import __main__ as process
from config.values.rules import redis_url


@pytest.mark.parametrize(
    "url", ["redis.example:6379", "http://redis.example", "redis://redis.example:port/0", "redis://[::1/0"]
)
def test_a_broker_url_that_redis_does_not_take_stops_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "hide_from_same_user", lambda: None)
    monkeypatch.setattr(process, "allow_open_files", lambda _: None)
    monkeypatch.setenv("TRAINYARD_BROKER_URL", url)
    monkeypatch.setenv("TRAINYARD_SECURITY_SECRET_KEY", "k" * 64)

    with pytest.raises(SystemExit, match="TRAINYARD_BROKER_URL: expected a URL like redis://"):
        process.main()


@pytest.mark.parametrize("url", ["", "redis://:pass@redis.example:6379/0", "rediss://redis.example", "unix:///r.sock"])
def test_other_broker_urls_are_taken(url: str) -> None:
    redis_url(url)
