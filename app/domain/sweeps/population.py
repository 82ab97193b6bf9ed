"""Population based training: who is replaced when all members have halted, and with which values the forks train.

After Jaderberg et al., 2017 (https://arxiv.org/abs/1711.09846): truncation selection, and either way to explore.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle

from app.domain.sweeps.draws import MAX_DRAWS, generator, seed_of
from app.domain.sweeps.parameters import Parameter, Value, exact, same
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import Method

PERTURB, RESAMPLE = "perturb", "resample"
EXPLORE = (PERTURB, RESAMPLE)
# Of the paper: numbers are multiplied with one of these, and values are drawn anew with this probability.
FACTORS = (Fraction(4, 5), Fraction(6, 5))
RESAMPLED = 0.25
# One of so many members is replaced, and one of so many is forked.
TRUNCATED = 4
_REPLACED = "replaced by a fork of trial "


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trial at a halt; smaller values are better, and an infinite one is none.

    ``has_checkpoint``: of this halt, so that it can be forked.
    """

    number: int
    value: float
    has_checkpoint: bool = True


@dataclass(frozen=True)
class Replacement:
    """A fork of ``winner`` takes the place of ``loser``."""

    loser: Member
    winner: Member


def ranked(members: Sequence[Member]) -> list[Member]:
    """Best first; of equal ones that with the lower number."""
    return sorted(members, key=lambda member: (member.value, member.number))


def truncated(members: int) -> int:
    """How many of so many members are replaced, and how many are forked."""
    return max(1, members // TRUNCATED) if members > 1 else 0


def halts_of_members(interval: int, steps: int) -> tuple[int, ...]:
    """The steps at which members of a training of so many steps halt."""
    return tuple(range(interval, steps, interval))


def replacements(members: Sequence[Member], *, most: int) -> list[Replacement]:
    """At most so many, in the order of the losers' numbers.

    The worst one is replaced by the best one, the next by the next; one that is no worse than its winner stays.
    """
    order, count = ranked(members), truncated(len(members))
    losers = [*reversed(order[len(order) - count :])]
    winners = [member for member in order[:count] if member.has_checkpoint]
    # Of no winner there is nothing to pair, however many losers there are.
    pairs = zip(losers[:most], cycle(winners), strict=False)
    found = [Replacement(loser, winner) for loser, winner in pairs if winner.value < loser.value]
    return sorted(found, key=lambda each: each.loser.number)


def replaced_by(winner: int, *, place: int, of: int, step: int) -> str:
    """Why a loser ends, in words that `is_replaced` knows."""
    return f"{_REPLACED}{winner}: {ordinal(place)} of {of} at {step} steps"


def is_replaced(stop_reason: str) -> bool:
    """Whether a trial ends because a fork takes its place."""
    return stop_reason.startswith(_REPLACED)


def ordinal(place: int) -> str:
    """1st, 2nd, 3rd, 4th … 11th …"""
    is_teen = place % 100 in (11, 12, 13)
    return f"{place}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th')}"


def explored(space: Space, values: Mapping[str, Value], method: Method, number: int) -> dict[str, Value]:
    """The values of the fork with this number, near or partly those of its winner.

    They meet every condition; where no draw does, they are the winner's own.
    """
    source = generator(seed_of(method.seed, number, "explore"))
    change = _perturbed if method.explore == PERTURB else _resampled
    for _ in range(MAX_DRAWS):
        found = _changed(space, values, source, change)
        if space.holds(found):
            return found
    return dict(values)


def _changed(
    space: Space,
    values: Mapping[str, Value],
    source: random.Random,
    change: Callable[[Parameter, Value, random.Random], Value],
) -> dict[str, Value]:
    """A parameter that the winner does not have, because it was not active there, is drawn anew."""
    found: dict[str, Value] = {}
    for parameter in space.parameters:
        if not space.active(parameter, found):
            continue
        if parameter.name in values:
            found[parameter.name] = change(parameter, values[parameter.name], source)
        else:
            found[parameter.name] = parameter.from_unit(source.random())
    return found


def _resampled(parameter: Parameter, value: Value, source: random.Random) -> Value:
    return parameter.from_unit(source.random()) if source.random() < RESAMPLED else value


def _perturbed(parameter: Parameter, value: Value, source: random.Random) -> Value:
    """A listed value becomes its neighbour or stays, a number is multiplied within its range and step."""
    if parameter.values:
        place = next(i for i, mine in enumerate(parameter.values) if same(value, mine))
        return parameter.values[_within(place + source.choice((-1, 0, 1)), len(parameter.values))]
    factor = source.choice(FACTORS)
    low, high, product = exact(parameter.low or 0), exact(parameter.high or 0), exact(value) * factor
    if parameter.size is None:
        return float(min(max(product, low), high))
    step = exact(parameter.step or 1)
    place, moved = round((exact(value) - low) / step), round((product - low) / step)
    if moved == place:  # the product is nearer to the value than to the next one
        moved += 1 if (factor > 1) == (float(value) >= 0) else -1
    return parameter.at(_within(moved, parameter.size))


def _within(place: int, size: int) -> int:
    return min(max(place, 0), size - 1)
