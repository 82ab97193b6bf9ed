"""Values and standard errors of metrics, from scores of samples."""

import math
import random
from statistics import stdev

import pytest

from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.evaluations.statistics import MOST_GROUPS, added, estimate, grouped
from app.domain.text_metrics.bleu import counts

MATCH = BENCHMARKS["exact_match"].metrics[0]
LOSS = BENCHMARKS["loss"].metrics[0]
PERPLEXITY = BENCHMARKS["perplexity"].metrics[0]
BLEU = BENCHMARKS["bleu"].metrics[0]


def test_the_standard_error_is_that_of_a_mean() -> None:
    found = estimate(MATCH, [1.0, 0.0, 1.0, 1.0])

    assert found.value == 0.75
    assert found.stderr == pytest.approx(0.25)


def test_one_sample_has_no_standard_error() -> None:
    assert estimate(MATCH, [1.0]).to_json() == {"value": 1.0, "stderr": None}


def test_perplexity_and_its_error_follow_from_the_mean_loss() -> None:
    found = estimate(PERPLEXITY, [(4.0, 4.0), (12.0, 4.0)])

    assert found.value == pytest.approx(math.exp(2))
    assert found.stderr == pytest.approx(math.exp(2) * 1.0)


def test_the_error_of_a_loss_does_not_grow_with_the_spread_of_lengths() -> None:
    draws = random.Random(2)

    def drawn() -> list[tuple[float, ...]]:
        lengths = [draws.randint(1, 200) for _ in range(100)]
        return [(sum(draws.uniform(1, 3) for _ in range(length)), float(length)) for length in lengths]

    losses = [estimate(LOSS, drawn()).value for _ in range(200)]

    assert estimate(LOSS, [(2.0 * length, float(length)) for length in range(1, 200)]).stderr == pytest.approx(0)
    assert estimate(LOSS, drawn()).stderr == pytest.approx(stdev(losses), rel=0.3)


def test_records_without_a_token_have_no_loss() -> None:
    assert estimate(LOSS, [(0.0, 0.0), (0.0, 0.0)]).value == 0.0


@pytest.mark.parametrize("scores", [[1e308, 1e308], [math.inf, -math.inf], [math.nan, 1.0]])
def test_scores_that_cannot_be_added_have_no_value(scores: list[float]) -> None:
    found = estimate(BENCHMARKS["reward"].metrics[0], scores)

    assert math.isnan(found.value)
    assert found.stderr is None


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1000.0])
def test_a_value_that_is_not_finite_has_no_standard_error(loss: float) -> None:
    found = estimate(PERPLEXITY, [(loss, 1.0), (loss, 1.0)])

    assert not math.isfinite(found.value)
    assert found.stderr is None


def test_bleu_is_of_the_corpus_and_its_error_is_repeatable() -> None:
    scores = [counts(f"the cat sat on mat {n}", ["the cat sat on the mat"]) for n in range(20)]

    found = estimate(BLEU, scores, seed=3)

    assert found == estimate(BLEU, scores, seed=3)
    assert found.value == pytest.approx(estimate(BLEU, scores[:1]).value)
    assert found.stderr is not None


def test_many_samples_are_grouped_without_losing_any() -> None:
    rows = [(float(n), 1.0) for n in range(2 * MOST_GROUPS + 7)]

    groups = grouped(rows)

    assert len(groups) == MOST_GROUPS
    assert added(groups) == added(rows)
