"""Seeded draws: the seed of each trial, and values at random."""

import hashlib
import random
from collections import Counter
from collections.abc import Callable

from app.domain.errors import BadSpec
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space

MAX_DRAWS = 1_000


def seed_of(sweep_seed: int, number: int, purpose: str = "") -> int:
    """63 bits that depend on all three, for the trial of this number."""
    digest = hashlib.sha256(f"{sweep_seed}:{number}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int) -> random.Random:
    """A generator of its own, which gives the same numbers on every machine."""
    return random.Random(seed)  # noqa: S311 - values of trials are no secrets, and have to be the same again


def random_values(space: Space, seed: int) -> dict[str, Value]:
    """Values that meet every condition, each parameter uniform on its scale.

    Raises BadSpec if none of the draws does.
    """
    source = generator(seed)
    return drawn(space, lambda: one_draw(space, source))


def one_draw(space: Space, source: random.Random) -> dict[str, Value]:
    """Values that may break a condition."""
    values: dict[str, Value] = {}
    for parameter in space.parameters:
        if space.active(parameter, values):
            values[parameter.name] = parameter.from_unit(source.random())
    return values


def drawn(space: Space, draw: Callable[[], dict[str, Value]]) -> dict[str, Value]:
    """The first of its draws that meets every condition. Raises BadSpec naming the condition that no draw met."""
    met: Counter[int] = Counter()
    for _ in range(MAX_DRAWS):
        values = draw()
        held = [i for i, condition in enumerate(space.conditions) if condition.holds(values)]
        if len(held) == len(space.conditions):
            return values
        met.update(held)
    rarest = min(range(len(space.conditions)), key=lambda i: met[i])
    often = "was never met" if not met[rarest] else f"was met by {met[rarest]} only, never with all others"
    raise BadSpec(
        f"{space.conditions[rarest].text!r} {often} in {MAX_DRAWS} draws; loosen it, or narrow the parameters",
        field="require",
    )
