"""Metrics of text_similarity; the expected figures are those of sacrebleu 2.6, nltk 3.10 and rouge_score 0.1.2."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.graders.document import FUZZY_MATCH, METRICS
from app.domain.graders.similarity import similarity
from app.patterns.fuzzy_match import fuzzy_match

BOOK = "he read the book because he was interested in world history"
TURNED = "he was interested in world history because he read the book"
MAT = "the cat sat on the mat"


@pytest.mark.parametrize(
    ("text", "reference", "figures"),
    [
        (
            MAT,
            "a cat was sitting on the mat, it said.",
            [0.1411, 0.184211, 0.533333, 0.307692, 0.181818, 0.0, 0.0, 0.533333],
        ),
        ("four", "four", [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        ("to be or not to be", "not to be", [0.302138, 0.333333, 0.666667, 0.571429, 0.4, 0.0, 0.0, 0.666667]),
        ("one two", "three four five", [0.0] * 8),
        ("", "something", [0.0] * 8),
        (BOOK, TURNED, [0.740083, 0.789474, 1.0, 0.9, 0.666667, 0.5, 0.285714, 0.545455]),
        (MAT, MAT, [1.0] * 8),
    ],
)
def test_figures_are_those_of_the_libraries(text: str, reference: str, figures: list[float]) -> None:
    found = [similarity(metric, text, reference) for metric in METRICS if metric != FUZZY_MATCH]

    assert found == pytest.approx(figures, abs=1e-5)


def test_fuzzy_match_ignores_case_and_what_is_around() -> None:
    assert fuzzy_match(" Fuzzy Wuzzy!", "fuzzy wuzzy") == 1.0
    assert fuzzy_match("this is a test", "this is a text") == pytest.approx(0.928571, abs=1e-5)
    assert fuzzy_match("", "text") == 0.0


@pytest.mark.parametrize("text", ["", "+", "😀"])
def test_equal_texts_without_letters_are_alike(text: str) -> None:
    assert fuzzy_match(text, text) == 1.0


@given(st.sampled_from(METRICS), st.text(max_size=30), st.text(max_size=30))
def test_every_metric_is_from_0_to_1(metric: str, text: str, reference: str) -> None:
    found = fuzzy_match(text, reference) if metric == FUZZY_MATCH else similarity(metric, text, reference)

    assert 0 <= found <= 1 + 1e-9


def test_long_texts_are_compared_in_time() -> None:
    words = [f"w{(index * 7919) % 10007}" for index in range(10_000)]
    text, reference = " ".join(words), " ".join(reversed(words))
    started = time.monotonic()

    found = [fuzzy_match(text, reference), *(similarity(metric, text, reference) for metric in ("bleu", "rouge_l"))]

    assert time.monotonic() - started < 20
    assert found[0] == pytest.approx(0.95)
