"""What of an answer its request does not decide: names, the time, and the seed of samples."""

import hashlib
import secrets
import time
from dataclasses import dataclass

_SEED_BITS = 31
_ID_DIGITS, _CALL_DIGITS = 32, 24  # hexadecimal ones


@dataclass(frozen=True, kw_only=True)
class Chance:
    """Of one answer; ``seed`` is that of a request which names none."""

    id: str
    created: int
    seed: int

    def call(self, choice: int, number: int) -> str:
        """The ID of a call of a tool, by its place."""
        return f"call_{_digest(f'{self.id}/{choice}/{number}')[:_CALL_DIGITS]}"


def drawn() -> Chance:
    """A new one for each answer."""
    return Chance(id=secrets.token_hex(_ID_DIGITS // 2), created=int(time.time()), seed=secrets.randbits(_SEED_BITS))


def derived(key: str, created: int) -> Chance:
    """The same for the same key, whenever and wherever the answer is made."""
    seed = int(_digest(f"{key}/seed"), 16) % (1 << _SEED_BITS)
    return Chance(id=_digest(key)[:_ID_DIGITS], created=created, seed=seed)


def _digest(text: str) -> str:
    # Keys may have lone surrogates, which JSON can say and UTF-8 can't.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
