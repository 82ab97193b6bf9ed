"""Makes each decision about a population again, and the values of each fork, from what is stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.sweeps.population import explored, ranked, replacements
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import PBT, SweepSpec
from app.models import Trial, TrialReport
from app.services.sweeps.forking.generations import member_of

Decision = tuple[bool, int, int]  # continues, rank, of


@dataclass(frozen=True)
class ReplayedFork:
    """A fork that took the place of a member; ``winner`` is None if by the reports no member was to be replaced."""

    trial: Trial
    winner: int | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class _Generation:
    """Reports that were decided about at once, and the forks of that decision, by number."""

    reports: Sequence[TrialReport]
    forks: Sequence[Trial]


def decisions(
    spec: SweepSpec, reports: Sequence[TrialReport], trials: Mapping[int, Trial]
) -> dict[tuple[int, int], Decision]:
    """By number and rung the decisions that were made later than their reports were recorded.

    How many forks the budget allowed, and which winners had checkpoints, is taken from the forks that there are.
    """
    found: dict[tuple[int, int], Decision] = {}
    for generation in _generations(spec, reports, trials):
        losers, places = _pairs(spec, generation), _places(spec, generation)
        for each in generation.reports:
            found[each.number, each.rung] = (each.number not in losers, places[each.number], len(places))
    return found | _by_hand(spec, reports)


def forks(
    spec: SweepSpec, space: Space, reports: Sequence[TrialReport], trials: Mapping[int, Trial]
) -> Iterator[ReplayedFork]:
    """Every fork of a population with the winner and the values that it has to have."""
    for generation in _generations(spec, reports, trials):
        winners: list[int | None] = [*_pairs(spec, generation).values()]
        winners += [None] * (len(generation.forks) - len(winners))
        for trial, winner in zip(generation.forks, winners, strict=False):
            values = trials[winner].values if winner is not None else trial.values
            # Its note says that a rule has refused explored values.
            is_explored = not (trial.note and trial.values == values)
            yield ReplayedFork(
                trial, winner, explored(space, values, spec.method, trial.number) if is_explored else values
            )


def _generations(spec: SweepSpec, reports: Sequence[TrialReport], trials: Mapping[int, Trial]) -> Iterator[_Generation]:
    """In the order in which they were decided about."""
    if spec.method.name != PBT:
        return
    for seq, group in sorted(_decided_together(reports).items()):
        if len(group) < 2:
            continue
        made = [trial for trial in trials.values() if trial.source == "exploited" and trial.seen_seq == seq]
        yield _Generation(group, sorted(made, key=lambda trial: trial.number))


def _decided_together(reports: Sequence[TrialReport]) -> dict[int, list[TrialReport]]:
    """Reports by the `seq` of their decision. That of a generation is the same for all of its members; one that was
    decided about when it was recorded, when its trial ended, or by a person, has its own.
    """
    found: dict[int, list[TrialReport]] = {}
    for report in reports:
        if report.decided_seq is not None:
            found.setdefault(report.decided_seq, []).append(report)
    return found


def _pairs(spec: SweepSpec, generation: _Generation) -> dict[int, int]:
    """Loser → winner, in the order of the losers, which is that of their forks."""
    parents = {fork.parent_number for fork in generation.forks}
    members = [member_of(spec, report, has_checkpoint=report.number in parents) for report in generation.reports]
    found = replacements(members, most=len(generation.forks))
    return {each.loser.number: each.winner.number for each in found}


def _places(spec: SweepSpec, generation: _Generation) -> dict[int, int]:
    members = [member_of(spec, report, has_checkpoint=True) for report in generation.reports]
    return {member.number: place for place, member in enumerate(ranked(members), start=1)}


def _by_hand(spec: SweepSpec, reports: Sequence[TrialReport]) -> dict[tuple[int, int], Decision]:
    """Ends and continuations that do not follow from the reports, as they are stored.

    So is the decision about the only member that is left, which always continues.
    """
    if spec.method.name != PBT:
        return {}
    return {
        (each.number, each.rung): (each.continues, each.rank, each.compared)
        for group in _decided_together(reports).values()
        for each in group
        if len(group) == 1 and each.decided_seq != each.seq
    }
