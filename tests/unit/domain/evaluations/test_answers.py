"""Scores of completions against accepted answers, by values that can be checked by hand."""

import pytest

from app.domain.evaluations import answers


@pytest.mark.parametrize(
    ("text", "normalized"),
    [("The  Cat's hat.", "cats hat"), ("an apple a day", "apple day"), ("Theory", "theory"), ("", "")],
)
def test_normalization_of_squad(text: str, normalized: str) -> None:
    assert answers.squad(text) == normalized


@pytest.mark.parametrize(
    ("completion", "normalize", "score"),
    [(" Paris ", "strip", 1), (" Paris ", "none", 0), ("paris.", "strip", 0), ("The paris.", "squad", 1)],
)
def test_an_exact_match_compares_what_normalization_leaves(completion: str, normalize: str, score: float) -> None:
    assert answers.exact_match(completion, ["Lyon", "Paris"], normalize) == score


@pytest.mark.parametrize(
    ("completion", "accepted", "score"),
    [("It is Paris, of course", ["paris"], 1), ("It is Lyon", ["Paris", "London"], 0), ("text", ["", "the"], 0)],
)
def test_contains_finds_an_accepted_answer(completion: str, accepted: list[str], score: float) -> None:
    assert answers.contains(completion, accepted, "squad") == score


@pytest.mark.parametrize(
    ("completion", "accepted", "score"),
    [
        ("the quick fox", ["a quick brown fox"], 0.8),
        ("fox fox", ["fox"], 2 / 3),
        ("dog", ["cat", "dog"], 1.0),
        ("dog", ["cat"], 0.0),
        ("", [""], 1.0),
        ("", ["cat"], 0.0),
    ],
)
def test_f1_is_the_best_overlap_of_words(completion: str, accepted: list[str], score: float) -> None:
    assert answers.f1(completion, accepted, "squad") == pytest.approx(score)


@pytest.mark.parametrize(
    ("completion", "any_value", "object_"),
    [('{"a": 1}', 1, 1), (" [1, 2] ", 1, 0), ("NaN", 0, 0), ("{} {}", 0, 0), ("", 0, 0), ("[" * 100_000, 0, 0)],
)
def test_json_is_one_whole_value(completion: str, any_value: float, object_: float) -> None:
    assert answers.json_valid(completion) == any_value
    assert answers.json_valid(completion, object_only=True) == object_
