"""ROUGE-L and BLEU; the expected figures are those of rouge_score 0.1.2 and sacrebleu 2.6.0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.text_metrics.bleu import SIZE, bleu, counts
from app.domain.text_metrics.rouge import longest_common_subsequence, rouge_l

WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


def corpus_bleu(completions: list[str], accepted: list[list[str]]) -> float:
    rows = [counts(*pair) for pair in zip(completions, accepted, strict=True)]
    return bleu([sum(column) for column in zip(*rows, strict=True)])


def test_rouge_l_is_that_of_rouge_score() -> None:
    found = rouge_l("the fox quick jumps dog", ["the quick brown fox jumps over the lazy dog", "a cat"])

    assert found == pytest.approx(0.5714285714285714)


def test_rouge_l_counts_words_of_every_script_and_ignores_case() -> None:
    assert rouge_l("Der Fluß fließt", ["der fluß fließt"]) == 1.0
    assert rouge_l("", ["words"]) == 0.0


@given(WORDS, WORDS)
def test_the_longest_common_subsequence_is_that_of_the_table(some: list[str], others: list[str]) -> None:
    row = [0] * (len(others) + 1)
    for one in some:
        before = row
        row = [0]
        for place, other in enumerate(others):
            row.append(before[place] + 1 if one == other else max(before[place + 1], row[place]))

    assert longest_common_subsequence(some, others) == row[-1]


@pytest.mark.parametrize(
    ("completions", "accepted", "score"),
    [
        (["the cat sat on the mat."], [["the cat is on the mat."]], 48.892302243490086),
        (
            ["It costs 1,000.5 dollars, e-mail us", "A second line here now"],
            [
                ["It costs 1,000 dollars, email us", "It cost 1,000.5 dollars, mail us"],
                ["A second line is here now", "Second line here now"],
            ],
            37.630490150902936,
        ),
        (["only two"], [["only three"]], 0.0),
        (["nothing in common here"], [["an answer of other words"]], 0.0),
        ([""], [["an answer"]], 0.0),
    ],
)
def test_bleu_is_that_of_sacrebleu(completions: list[str], accepted: list[list[str]], score: float) -> None:
    assert corpus_bleu(completions, accepted) == pytest.approx(score)


def test_a_perfect_completion_has_all_of_bleu() -> None:
    assert corpus_bleu(["a &amp; b, c-d (e)"], [["a & b, c-d (e)"]]) == pytest.approx(100.0)


def test_counts_have_one_size_also_without_words() -> None:
    assert {len(counts(text, ["one two", "three"])) for text in ("", "one", "one two three four five")} == {SIZE}
