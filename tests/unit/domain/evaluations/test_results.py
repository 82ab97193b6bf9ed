"""What is taken from the file with the results of an evaluation, which a rank wrote."""

import json
from typing import Any

import pytest

from app.domain.evaluations import results

RESULT: dict[str, Any] = {"metrics": {"f1": {"value": 0.5, "stderr": 0.1}}, "n": 4, "seconds": 1.23456, "tokens": 9}


def read(benchmarks: object) -> Any:
    return results.read(json.dumps({"benchmarks": benchmarks, "config": {}}))


def test_metrics_counts_and_seconds_are_read() -> None:
    assert read({"f1": RESULT}) == {"f1": {**RESULT, "seconds": 1.235}}


def test_numbers_that_are_not_finite_are_names() -> None:
    metrics = {"a": {"value": "NaN", "stderr": None}, "b": {"value": float("inf"), "stderr": "a lot"}, "c": 2}

    found = read({"x": {"metrics": metrics, "n": "many", "seconds": float("nan")}})

    assert found == {
        "x": {
            "metrics": {
                "a": {"value": "NaN", "stderr": None},
                "b": {"value": "Infinity", "stderr": None},
                "c": {"value": 2.0, "stderr": None},
            },
            "seconds": None,
        }
    }


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"benchmarks": []}', '{"benchmarks": {"f1": {"metrics": 3}}}'])
def test_another_form_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|no JSON object"):
        results.read(content)


def test_samples_have_a_file_for_each_benchmark() -> None:
    assert results.samples_file("custom-brevity") == "samples-custom-brevity.jsonl"
