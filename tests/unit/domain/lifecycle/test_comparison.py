"""What distinguishes jobs: differences of documents, which metric values are better, and differences to the first."""

import math
from typing import Any

import pytest

from app.domain.lifecycle.comparison import (
    Spread,
    best_of,
    differences_to_first,
    document_differences,
    goal_in,
    groups_by,
    spread_of,
)
from app.domain.spec.model import CheckpointConfig


def differences(*documents: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {row.field: row.values for row in document_differences(documents)}


def test_fields_that_differ_are_dotted_and_sorted_with_a_value_per_document() -> None:
    first = {"b": {"x": 1, "same": "s"}, "a": "text"}
    second = {"b": {"x": 2, "same": "s"}, "a": "text"}
    third = {"b": {"same": "s"}, "a": "other"}

    assert differences(first, second, third) == {"a": ("text", "text", "other"), "b.x": (1, 2, None)}
    assert list(differences(first, third)) == ["a", "b.x"]
    assert differences(first, first) == {}


def test_parts_of_lists_are_numbered_and_lists_of_plain_values_are_one_value() -> None:
    first = {"sources": [{"path": "a"}, {"path": "b"}], "words": ["x"]}
    second = {"sources": [{"path": "a"}, {"path": "c"}], "words": ["x", "y"]}
    third = {"sources": [{"path": "a"}]}

    assert differences(first, second, third) == {"sources.1.path": ("b", "c", None), "words": (["x"], ["x", "y"], None)}


@pytest.mark.parametrize("empty", [None, {}, [], {"inner": {}}, {"inner": None}])
def test_what_is_empty_is_absent(empty: object) -> None:
    assert differences({"part": empty}, {}) == {}
    assert differences({"part": empty}, {"part": {"x": 0}}) == {"part.x": (None, 0)}


def test_values_of_other_types_differ_and_equal_numbers_do_not() -> None:
    assert differences({"x": True}, {"x": 1}) == {"x": (True, 1)}
    assert differences({"x": False}, {"x": 0}) == {"x": (False, 0)}
    assert differences({"x": "1"}, {"x": 1}) == {"x": ("1", 1)}
    assert differences({"x": 1}, {"x": 1.0}) == {}


def test_a_part_may_be_a_value_elsewhere() -> None:
    assert differences({"x": True}, {"x": {"y": 1}}) == {"x": (True, None), "x.y": (None, 1)}


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("loss", "minimize"),
        ("eval_loss", "minimize"),
        ("test_perplexity", "minimize"),
        ("eval_mean_token_accuracy", "maximize"),
        ("eval_rewards/margins", "maximize"),
        ("mean_reward", "maximize"),
        ("learning_rate", None),
        ("step_seconds", None),
        ("f1", "maximize"),
    ],
)
def test_names_say_what_is_better(metric: str, goal: str | None) -> None:
    assert goal_in([CheckpointConfig()], metric) == goal


def test_what_jobs_choose_their_best_checkpoint_by_wins() -> None:
    f1, lowest = CheckpointConfig(metric_for_best_model="f1"), CheckpointConfig(metric_for_best_model="accuracy")
    lowest = lowest.changed(greater_is_better=False)

    assert goal_in([CheckpointConfig(), f1], "f1") == "maximize"
    assert goal_in([f1], "eval_f1") == "maximize"
    assert goal_in([f1], "f2") is None
    assert goal_in([lowest], "accuracy") == "minimize"
    assert goal_in([lowest, lowest.changed(greater_is_better=True)], "accuracy") is None


def test_best_is_among_the_finite_values() -> None:
    values = [math.nan, 2.0, -math.inf, 1.0, math.inf]

    assert best_of(values, "minimize") == 1.0
    assert best_of(values, "maximize") == 2.0
    assert best_of(values, None) is None
    assert best_of([math.nan], "minimize") is None
    assert best_of([], "maximize") is None


def test_differences_are_those_to_the_first() -> None:
    assert differences_to_first([1.0, 1.5, None, math.nan, math.inf]) == [0.0, 0.5, None, None, None]
    assert differences_to_first([None, 1.0]) == [None, None]
    assert differences_to_first([math.inf, math.inf, 1.0]) == [None, None, None]


def test_groups_are_by_value_and_those_without_the_label_are_last() -> None:
    labels = [{"lr": "b"}, {}, {"lr": "a", "other": "x"}, {"lr": "b"}]

    found = [(group.value, group.places) for group in groups_by(labels, "lr")]

    assert found == [("a", (2,)), ("b", (0, 3)), (None, (1,))]


def test_spread_is_of_finite_values() -> None:
    assert spread_of([1.0, None, math.nan, 4.0, math.inf]) == Spread(count=2, mean=2.5, low=1.0, high=4.0)
    assert spread_of([None, math.nan]) is None
