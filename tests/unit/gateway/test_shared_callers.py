"""Requests that bring the same key at once: what they share of its check, and what not."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.domain.errors import CredentialsInvalid, LimitExceeded
from app.gateway.backend import Credentials, GatewayBackend
from app.services.access import api_keys, denied_requests


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose denials are noted."""
    found: list[str] = []

    def refuse(*_: object) -> None:
        raise CredentialsInvalid("no such key")

    monkeypatch.setattr(api_keys, "authenticate", refuse)
    monkeypatch.setattr(denied_requests, "note", lambda _db, _throttle, source, _denial: found.append(source))
    return found


def test_wrong_keys_count_against_the_address_that_sends_them(sources: list[str]) -> None:
    settings: Any = SimpleNamespace(
        security=SimpleNamespace(secret_key="k" * 40),
        serving=SimpleNamespace(auto=False),
        gateway=SimpleNamespace(threads=2),
        broker=SimpleNamespace(url=""),
        api=SimpleNamespace(wrong_keys_per_second=0.01, wrong_keys_burst=1),
    )
    plane: Any = SimpleNamespace(db=None)
    asked = GatewayBackend(settings, plane, gateway_id="gateway-1")

    async def ask(*addresses: str, key: str) -> list[type]:
        requests = (asked.caller(Credentials(key=key, project="", address=each)) for each in addresses)
        return [type(each) for each in await asyncio.gather(*requests, return_exceptions=True)]

    async def scenario() -> tuple[list[type], list[type]]:
        return await ask("10.0.0.1", key="a"), await ask("10.0.0.1", "10.0.0.2", key="b")

    first, both = asyncio.run(scenario())
    asked.close()

    assert first == [CredentialsInvalid]
    assert both == [LimitExceeded, CredentialsInvalid]
    assert sources == ["10.0.0.1", "10.0.0.2"]
