"""Promotions: which halted trials continue.

``asha`` and ``hyperband`` with ``losers: pause`` are asynchronous successive halving as published (Li et al., A System
for Massively Parallel Hyperparameter Tuning, 2018, Algorithm 2, https://arxiv.org/abs/1810.05934). A trial halts at
its rung and waits; it is promoted once it is among the best 1 / reduction of all that have reported there. A decision
is a pure function of the reports that it rests on, so that a replay makes it again.
"""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass

from app.domain.sweeps.rungs import RungReport, rungs_of
from app.domain.sweeps.spec import ASHA, HYPERBAND, NONE, PAUSE, PBT, EarlyStopping, SweepSpec

_Group = tuple[int, int]  # rung, bracket
_Place = tuple[float, int, int]  # value, number, rung


@dataclass(frozen=True)
class Standing:
    """A report and its rank among the ``of`` reports of its rung and bracket; 1 is the best, equal values rank by
    number.
    """

    report: RungReport
    rank: int
    of: int


def halts(spec: SweepSpec) -> bool:
    """Whether trials of the sweep stop at their rungs."""
    return spec.early_stopping.losers == PAUSE or spec.method.name == PBT


def judges(spec: SweepSpec) -> bool:
    """Whether trials of the sweep report at rungs."""
    return spec.early_stopping.name != NONE or spec.method.name == PBT


def waits(spec: SweepSpec) -> bool:
    """Whether a halted trial waits for others: the rules of median and patience decide about it at once."""
    return spec.method.name == PBT or (
        spec.early_stopping.losers == PAUSE and spec.early_stopping.name in (ASHA, HYPERBAND)
    )


def halts_of(rule: EarlyStopping, bracket: int = 0) -> tuple[int, ...]:
    """Amounts at which trials of the bracket halt, ascending; at ``max`` they end."""
    if rule.losers != PAUSE:
        return ()
    return tuple(rung for rung in rungs_of(rule, bracket) if rung < rule.max)


class Ladder:
    """The reports of a sweep by rung and bracket, and which of them wait for a decision."""

    def __init__(self, rule: EarlyStopping) -> None:
        self._rule = rule
        self._all: dict[_Group, list[_Place]] = {}  # ascending: the best first
        self._waiting: dict[_Group, list[_Place]] = {}
        self._reports: dict[_Place, RungReport] = {}

    def add(self, report: RungReport, *, waits: bool) -> None:
        """A report, and whether its trial waits; one whose value is not finite is never promoted."""
        place = _place(report)
        self._reports[place] = report
        insort(self._all.setdefault(_group(report), []), place)
        if waits:
            insort(self._waiting.setdefault(_group(report), []), place)

    def decide(self, report: RungReport) -> None:
        """The report waits no more."""
        waiting = self._waiting[_group(report)]
        del waiting[bisect_left(waiting, _place(report))]

    def standing(self, report: RungReport) -> Standing:
        everyone = self._all[_group(report)]
        return Standing(report, bisect_left(everyone, _place(report)) + 1, len(everyone))

    def waiting(self) -> list[Standing]:
        """All that wait, by rung and value."""
        return [self.standing(self._reports[place]) for places in self._waiting.values() for place in places]

    def first(self, *, least: int = 0) -> Standing | None:
        """The trial that is promoted next: of the highest rung, there the best, equal ones by number.

        It is among the best 1 / reduction of all that have reported at its rung; ``least``: or among so many.
        """
        found = [each for each in self._best_of_groups() if each.rank <= max(least, each.of // self._rule.reduction)]
        return min(found, key=_in_line, default=None)

    def take(self, most: int, *, least: int = 0) -> list[Standing]:
        """The next so many that are promoted one after the other; they wait no more."""
        taken: list[Standing] = []
        while len(taken) < most and (each := self.first(least=least)):
            taken.append(each)
            self.decide(each.report)
        return taken

    def best(self) -> Standing | None:
        """Of those that wait the one that has come furthest, there the best."""
        return min(self._best_of_groups(), key=_in_line, default=None)

    def _best_of_groups(self) -> list[Standing]:
        best = [self.standing(self._reports[places[0]]) for places in self._waiting.values() if places]
        return [each for each in best if math.isfinite(each.report.value)]


def _group(report: RungReport) -> _Group:
    return (report.rung, report.bracket)


def _place(report: RungReport) -> _Place:
    return (report.value if math.isfinite(report.value) else math.inf, report.number, report.rung)


def _in_line(each: Standing) -> tuple[int, _Place]:
    return (-each.report.rung, _place(each.report))
