"""Early stopping: the rungs at which trials are compared, and whether one continues.

``asha`` is the stopping variant of asynchronous successive halving (Li et al., A System for Massively Parallel
Hyperparameter Tuning, 2018, https://arxiv.org/abs/1810.05934): a decision depends on earlier reports only, so nothing
ever waits. ``hyperband`` runs it in several brackets, the first rungs of which lie higher and higher.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from app.domain.sweeps.spec import ASHA, HYPERBAND, MEDIAN, NONE, PATIENCE, EarlyStopping

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class RungReport:
    """``value``: smaller is better. ``rung``: one of ``rungs_of``. ``seq`` numbers the reports of a sweep."""

    number: int
    rung: int
    value: float
    seq: int
    bracket: int = 0


@dataclass(frozen=True)
class RungVerdict:
    """``rank`` among the ``of`` reports that were compared, 1 for the best."""

    continues: bool
    rank: int
    of: int


def rungs_of(rule: EarlyStopping, bracket: int = 0) -> tuple[int, ...]:
    """Amounts of training (``unit``) at which trials of the bracket are compared, ascending."""
    if rule.name == NONE or rule.min < 1:
        return ()
    if rule.name == PATIENCE:
        return tuple(range(rule.min, rule.max + 1, rule.min))
    found = []
    amount = rule.min * rule.reduction**bracket
    while amount <= rule.max:
        found.append(amount)
        amount *= rule.reduction
    return tuple(found)


def brackets_of(rule: EarlyStopping) -> int:
    """More than 1 for hyperband only."""
    return max(1, len(rungs_of(rule))) if rule.name == HYPERBAND else 1


def bracket_of(rule: EarlyStopping, number: int) -> int:
    """The bracket of a trial: as many trials in each as in Hyperband, one after the other and well mixed."""
    weights = _weights(rule)
    period = sum(weights)
    # Steps of about a golden section visit every place of the period once and spread each bracket over it.
    return bisect_right(list(accumulate(weights)), number * _stride(period) % period)


def judge(rule: EarlyStopping, mine: RungReport, others: Sequence[RungReport]) -> RungVerdict:
    """``others``: reports of the sweep with a smaller ``seq``, of every rung.

    A value that is not finite never continues. A trial that has reached ``max`` always does: nothing is left to save.
    """
    peers = _peers(rule, mine, others)
    finite = [report.value for report in peers if math.isfinite(report.value)]
    if not math.isfinite(mine.value):
        return RungVerdict(rule.name == NONE, len(peers) + 1, len(peers) + 1)
    # A tie is no loss: with equal values there is no reason to stop the later trial.
    rank = 1 + sum(value < mine.value for value in finite)
    return RungVerdict(mine.rung >= rule.max or _continues(rule, mine, peers, rank), rank, len(peers) + 1)


def _peers(rule: EarlyStopping, mine: RungReport, others: Sequence[RungReport]) -> list[RungReport]:
    if rule.name == PATIENCE:
        return sorted((each for each in others if each.number == mine.number), key=lambda each: each.seq)
    return [
        each
        for each in others
        if each.rung == mine.rung and each.bracket == mine.bracket and each.number != mine.number
    ]


def _continues(rule: EarlyStopping, mine: RungReport, peers: Sequence[RungReport], rank: int) -> bool:
    values = [each.value for each in peers]
    if rule.name in (ASHA, HYPERBAND):
        return rank <= max(1, (len(peers) + 1) // rule.reduction)
    if rule.name == MEDIAN:
        # One that is not finite is worse than all others.
        ranked = [value if math.isfinite(value) else math.inf for value in values]
        return len(ranked) < rule.startup_trials or mine.value <= statistics.median(ranked)
    return rule.name != PATIENCE or _reports_since_best([*values, mine.value]) < rule.patience


def _reports_since_best(values: Sequence[float]) -> int:
    best = min(range(len(values)), key=lambda i: values[i] if math.isfinite(values[i]) else math.inf)
    return len(values) - 1 - best


@lru_cache(maxsize=64)
def _weights(rule: EarlyStopping) -> tuple[int, ...]:
    """Trials of each bracket in one round of Hyperband (Li et al., 2018, https://arxiv.org/abs/1603.06560)."""
    brackets = brackets_of(rule)
    if brackets == 1:
        return (1,)
    halvings = range(brackets - 1, -1, -1)
    return tuple(math.ceil(brackets * rule.reduction**each / (each + 1)) for each in halvings)


@lru_cache(maxsize=64)
def _stride(period: int) -> int:
    """The number nearest to a golden section of the period that has no divisor in common with it."""
    wanted = max(1, round(period * _GOLDEN))
    return next(
        each for away in range(period + 1) for each in (wanted - away, wanted + away) if math.gcd(each, period) == 1
    )
