"""The value of an objective, from the points of a trial's metric."""

import math
from collections.abc import Sequence

BEST, LAST, MEAN = "best", "last", "mean:"
MAX_MEAN = 10_000
REPORT = "report."  # before the name of a number of a job's report


def mean_of(select: str) -> int | None:
    """N of ``mean:N``; None for anything else."""
    digits = select.removeprefix(MEAN)
    if digits == select or not digits.isascii() or not digits.isdecimal() or len(digits) > 5:
        return None
    return int(digits) if 1 <= int(digits) <= MAX_MEAN else None


def is_select(select: str) -> bool:
    """Whether it is best, last or mean:N."""
    return select in (BEST, LAST) or mean_of(select) is not None


def selected(points: Sequence[tuple[int, float]], select: str) -> float | None:
    """The value of (step, value) points whose signs make smaller better; None without a finite one.

    Of points of one step the later counts: a retry repeats steps. NaN and infinities are left out for ``best``, and
    make ``last`` and ``mean`` None.
    """
    by_step = dict(points)
    values = [by_step[step] for step in sorted(by_step)]
    if select == BEST:
        return min(filter(math.isfinite, values), default=None)
    count = 1 if select == LAST else mean_of(select)
    if count is None:
        raise ValueError(f"select is {select!r}, not best, last or mean:N")
    values = values[-count:]
    if not values or not all(map(math.isfinite, values)):
        return None
    # Divided first, because the sum of finite values may be infinite.
    return math.fsum(value / len(values) for value in values)
