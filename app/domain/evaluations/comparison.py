"""Comparison of two evaluations by the samples that both have: paired bootstrap, McNemar's test, changed samples."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.domain.evaluations.metric import MetricDefinition
from app.domain.evaluations.samples import Sample
from app.domain.evaluations.statistics import Sums, added, fits, grouped, resamples, sums_of, value_of

CHANGES_SHOWN = 100
_TAIL = 0.025  # on each side of a 95 % interval
_EXACT_PAIRS = 1000

Pair = tuple[Sample, Sample]


@dataclass(frozen=True, kw_only=True)
class SampleChange:
    """A sample whose score differs by sides: for right-or-wrong metrics, one that changed sides."""

    index: int
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """How much more the other evaluation has than the baseline, over the ``n`` samples that both have.

    ``interval`` is a 95 % interval, None for fewer than two samples and where it is not finite. ``p_value`` is
    McNemar's exact, None for metrics that are not right or wrong. ``changed`` has the first samples that changed
    sides, ``changes`` their number.
    """

    difference: float
    interval: tuple[float, float] | None
    p_value: float | None
    n: int
    changes: int
    changed: tuple[SampleChange, ...]


def paired(baseline: Iterable[Sample], other: Iterable[Sample]) -> list[Pair]:
    """The samples of the same record, in the baseline's order; of equal records the first, the second … of both."""
    found = dict(_numbered(other))
    return [(sample, found[key]) for key, sample in _numbered(baseline) if key in found]


def compare(metric: MetricDefinition, pairs: Sequence[Pair], seed: int = 0) -> ScoreDifference | None:
    """The difference over the pairs that have the metric; None when none does."""
    scored = [pair for pair in pairs if all(fits(metric, each.scores.get(metric.name)) for each in pair)]
    before, after = (sums_of([pair[side].scores[metric.name] for pair in scored]) for side in (0, 1))
    if not before:
        return None
    changed = _changes(metric, scored)
    return ScoreDifference(
        difference=value_of(metric, added(after)) - value_of(metric, added(before)),
        interval=_interval(metric, before, after, seed),
        p_value=_mcnemar(changed) if metric.is_binary else None,
        n=len(before),
        changes=len(changed),
        changed=tuple(changed[:CHANGES_SHOWN]),
    )


def notes(baseline: Sequence[Sample], other: Sequence[Sample], seeds: tuple[int, int] = (0, 0)) -> list[str]:
    """What makes the two less comparable: other samples, prompts, right answers, or seeds."""
    pairs = paired(baseline, other)
    found = []
    if len(pairs) < max(len(baseline), len(other)):
        found.append(
            f"samples differ: {len(pairs)} are in both, of {len(baseline)} of the baseline and {len(other)} of the "
            "other; only these are compared"
        )
    if prompts := sum(one.prompt_hash != two.prompt_hash for one, two in pairs):
        found.append(f"prompts differ in {prompts} of {len(pairs)} samples: another chat template or tokenizer")
    if targets := sum(one.target_hash != two.target_hash for one, two in pairs):
        found.append(f"right answers differ in {targets} of {len(pairs)} samples: another column or parameter")
    if seeds[0] != seeds[1]:
        found.append(f"seeds differ: {seeds[0]} and {seeds[1]}")
    return found


def mcnemar(lost: int, won: int) -> float:
    """Two-sided exact p of samples that changed from right to wrong, and from wrong to right."""
    total, fewer = lost + won, min(lost, won)
    if total <= _EXACT_PAIRS:
        tail = sum(math.comb(total, k) for k in range(fewer + 1)) / (1 << total)
    else:
        tail = math.fsum(math.exp(_log_comb(total, k) - total * math.log(2)) for k in range(fewer + 1))
    return min(1.0, 2 * tail)


def _numbered(samples: Iterable[Sample]) -> Iterable[tuple[tuple[str, int], Sample]]:
    seen: Counter[str] = Counter()
    for sample in samples:
        seen[sample.doc_hash] += 1
        yield (sample.doc_hash, seen[sample.doc_hash]), sample


def _interval(
    metric: MetricDefinition, before: Sequence[Sums], after: Sequence[Sums], seed: int
) -> tuple[float, float] | None:
    if len(before) < 2:
        return None
    if metric.aggregate == "mean":
        # The difference of means is the mean of differences, which takes half the time.
        found = [value_of(metric, summed) for summed in _resampled(_subtracted(before, after), seed)]
    else:
        both = [(*one, *two) for one, two in zip(before, after, strict=True)]
        width = len(before[0])
        sides = ((summed[:width], summed[width:]) for summed in _resampled(both, seed))
        found = [value_of(metric, two) - value_of(metric, one) for one, two in sides]
    if not all(map(math.isfinite, found)):
        return None
    found.sort()
    return _quantile(found, _TAIL), _quantile(found, 1 - _TAIL)


def _subtracted(before: Sequence[Sums], after: Sequence[Sums]) -> list[Sums]:
    return [(two[0] - one[0], 1.0) for one, two in zip(before, after, strict=True)]


def _resampled(rows: Sequence[Sums], seed: int) -> Iterator[Sums]:
    return map(added, resamples(grouped(rows), seed))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _changes(metric: MetricDefinition, pairs: Sequence[Pair]) -> list[SampleChange]:
    if not metric.is_binary:
        return []
    sides = [(one.index, _number(one.scores, metric), _number(two.scores, metric)) for one, two in pairs]
    return [SampleChange(index=index, before=before, after=after) for index, before, after in sides if before != after]


def _number(scores: Mapping[str, object], metric: MetricDefinition) -> float:
    score = scores[metric.name]
    return score if isinstance(score, float) else math.nan


def _mcnemar(changed: Sequence[SampleChange]) -> float:
    won = sum(change.after > change.before for change in changed)
    return mcnemar(len(changed) - won, won)


def _log_comb(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
