"""Which keys are remembered, and for how long."""

import pytest

from app.security import key_cache
from app.security.api_key_format import StoredKey
from app.security.key_cache import TTL_SECONDS, KeyCache


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stored(key_id: str) -> StoredKey:
    return StoredKey(
        id=key_id, project="default", role="user", secret_hash="", revoked_at=None, expires_at=None, last_used_at=None
    )


def test_key_is_remembered_for_less_than_a_second() -> None:
    clock = Clock()
    known = KeyCache(clock)
    known.remember("ty_a", stored("key-a"))

    clock.now += TTL_SECONDS - 0.1
    assert known.get("ty_a") == stored("key-a")
    clock.now += 0.2
    assert known.get("ty_a") is None
    assert TTL_SECONDS < 1


def test_unknown_key_is_not_remembered() -> None:
    assert KeyCache().get("ty_a") is None


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cache, "MAX_KEYS", 2)
    known = KeyCache()

    for name in ("a", "b", "a", "c"):
        known.remember(name, stored(f"key-{name}"))

    assert [name for name in "abc" if known.get(name)] == ["a", "c"]
