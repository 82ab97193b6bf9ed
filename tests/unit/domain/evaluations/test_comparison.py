"""Two evaluations are compared over the samples that both have, with an interval and the samples that changed."""

import math
import random
from collections.abc import Iterable
from typing import Any

import pytest

from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.evaluations.comparison import CHANGES_SHOWN, compare, mcnemar, notes, paired
from app.domain.evaluations.samples import Sample, Score
from app.domain.text_metrics.bleu import counts

MATCH = BENCHMARKS["exact_match"].metrics[0]
REWARD = BENCHMARKS["reward"].metrics[0]
F1 = BENCHMARKS["f1"].metrics[0]
LOSS = BENCHMARKS["loss"].metrics[0]
BLEU = BENCHMARKS["bleu"].metrics[0]


def samples(scores: Iterable[Score], metric: str = "exact_match", **more: Any) -> list[Sample]:
    return [
        Sample(index=index, doc_hash=f"doc-{index}", scores={metric: score}, **more)
        for index, score in enumerate(scores)
    ]


def test_a_difference_has_its_interval_and_the_samples_that_changed_sides() -> None:
    before, after = samples([0.0] * 40 + [1.0] * 60), samples([1.0] * 30 + [0.0] * 12 + [1.0] * 58)

    found = compare(MATCH, paired(before, after), seed=1)

    assert found is not None
    assert found.difference == pytest.approx(0.28)
    assert found.interval is not None
    low, high = found.interval
    # The normal approximation with the spread of the differences.
    assert low == pytest.approx(0.28 - 1.96 * 0.0494, abs=0.02)
    assert high == pytest.approx(0.28 + 1.96 * 0.0494, abs=0.02)
    assert found.p_value == mcnemar(2, 30)
    assert (found.n, found.changes) == (100, 32)
    assert (found.changed[0].index, found.changed[0].before, found.changed[0].after) == (0, 0.0, 1.0)


def test_the_same_evaluation_does_not_differ() -> None:
    found = compare(MATCH, paired(samples([0.0, 1.0]), samples([0.0, 1.0])))

    assert found is not None
    assert (found.difference, found.interval, found.p_value, found.changed) == (0.0, (0.0, 0.0), 1.0, ())


def test_pairing_makes_the_interval_narrower_than_the_spread_of_samples() -> None:
    draws = random.Random(5)
    before = [draws.random() for _ in range(300)]
    after = [score + 0.01 for score in before]

    found = compare(F1, paired(samples(before, "f1"), samples(after, "f1")))

    assert found is not None
    assert found.interval == pytest.approx((0.01, 0.01))
    assert found.p_value is None


def test_intervals_of_many_samples_come_from_groups_and_are_as_wide() -> None:
    draws = random.Random(7)
    before, after = ([draws.random() for _ in range(5000)] for _ in range(2))

    found = compare(F1, paired(samples(before, "f1"), samples(after, "f1")))

    assert found is not None
    assert found.interval is not None
    expected = 2 * 1.96 * math.sqrt(2 / 12 / 5000)
    assert found.interval[1] - found.interval[0] == pytest.approx(expected, rel=0.1)


def test_bleu_is_compared_as_the_corpus_figure() -> None:
    before = [counts(f"the cat sat on a mat {n}", ["the cat sat on the mat"]) for n in range(30)]
    after = [counts("the cat sat on the mat", ["the cat sat on the mat"])] * 30

    found = compare(BLEU, paired(samples(before, "bleu"), samples(after, "bleu")))

    assert found is not None
    assert found.interval is not None
    assert 0 < found.interval[0] <= found.difference <= found.interval[1]


def test_losses_are_compared_over_tokens_whatever_the_lengths_of_records() -> None:
    lengths = [float(n) for n in range(1, 101)]
    before, after = ([(loss * length, length) for length in lengths] for loss in (2.0, 1.5))

    found = compare(LOSS, paired(samples(before, "loss"), samples(after, "loss")))

    assert found is not None
    assert found.difference == pytest.approx(-0.5)
    assert found.interval == pytest.approx((-0.5, -0.5))


@pytest.mark.parametrize("score", [1e308, math.inf, -math.inf, math.nan])
def test_a_difference_that_is_not_finite_has_no_interval(score: float) -> None:
    found = compare(REWARD, paired(samples([score, score], "reward"), samples([-score, 1.0], "reward")))

    assert found is not None
    assert (math.isfinite(found.difference), found.interval) == (False, None)


@pytest.mark.parametrize("score", [(1.0, 2.0), 0.5, math.nan])
def test_scores_of_another_form_are_not_compared(score: Score) -> None:
    found = compare(MATCH, paired(samples([0.0, score]), samples([1.0, 1.0])))

    assert found is not None
    assert (found.n, found.difference) == (1, 1.0)
    assert compare(BLEU, paired(samples([1.0], "bleu"), samples([(1.0, 2.0)], "bleu"))) is None


def test_counts_of_bleu_that_contradict_each_other_are_no_error() -> None:
    rows = [(0.0, *[9.0] * 9), (2.0**53, 0.0, *[2.0**53] * 4, *[1.0] * 4)]

    assert compare(BLEU, paired(samples(rows, "bleu"), samples(rows[::-1], "bleu"))) is not None
    assert compare(BLEU, paired(samples(rows[:1], "bleu"), samples(rows[:1], "bleu"))) is not None


def test_samples_are_paired_by_their_records_whatever_their_order() -> None:
    before = [Sample(index=n, doc_hash=each) for n, each in enumerate(["a", "b", "b", "c"])]
    after = [Sample(index=n, doc_hash=each) for n, each in enumerate(["b", "a", "b", "d"])]

    pairs = paired(before, after)

    assert [(one.index, two.index) for one, two in pairs] == [(0, 1), (1, 0), (2, 2)]


def test_a_metric_that_one_side_lacks_is_not_compared() -> None:
    assert compare(F1, paired(samples([1.0]), samples([1.0]))) is None
    assert compare(F1, []) is None


def test_one_sample_has_no_interval() -> None:
    found = compare(MATCH, paired(samples([1.0]), samples([0.0])))

    assert found is not None
    assert (found.difference, found.interval) == (-1.0, None)


def test_only_the_first_changes_are_listed() -> None:
    found = compare(MATCH, paired(samples([0.0] * 150), samples([1.0] * 150)))

    assert found is not None
    assert (found.changes, len(found.changed)) == (150, CHANGES_SHOWN)


@pytest.mark.parametrize(
    ("lost", "won", "p"), [(0, 0, 1.0), (1, 5, 0.21875), (0, 10, 2 / 1024), (5, 5, 1.0), (900, 1100, 8.5e-6)]
)
def test_mcnemar_is_a_binomial_test_of_both_sides(lost: int, won: int, p: float) -> None:
    assert mcnemar(lost, won) == pytest.approx(p, rel=0.02)
    assert mcnemar(won, lost) == mcnemar(lost, won)


def test_notes_say_what_makes_evaluations_less_comparable() -> None:
    before = samples([1.0] * 4, prompt_hash="p", target_hash="t")
    after = samples([1.0] * 3, prompt_hash="q", target_hash="u")

    found = notes(before, after, seeds=(1, 2))

    assert [note.partition(":")[0] for note in found] == [
        "samples differ",
        "prompts differ in 3 of 3 samples",
        "right answers differ in 3 of 3 samples",
        "seeds differ",
    ]
    assert notes(before, before) == []
