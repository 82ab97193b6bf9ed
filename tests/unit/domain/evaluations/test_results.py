"""What is taken from the file with the results of an evaluation, which a rank wrote."""

import json
from typing import Any

import pytest

from app.domain.evaluations import results

RESULT: dict[str, Any] = {"metrics": {"f1": {"value": 0.5, "stderr": 0.1}}, "n": 4, "seconds": 1.23456, "tokens": 9}


def read(benchmarks: object, *names: str) -> Any:
    return results.read(json.dumps({"benchmarks": benchmarks, "config": {}}), names or ("f1",))


def test_metrics_counts_and_seconds_are_read() -> None:
    assert read({"f1": RESULT}) == {"f1": {**RESULT, "seconds": 1.235}}


def test_numbers_that_are_not_finite_are_names() -> None:
    metrics = {"accuracy": {"value": "NaN", "stderr": None}, "margin": {"value": float("inf"), "stderr": "a lot"}}
    others = {"metrics": {"f1": 2}, "n": "many", "seconds": float("nan")}

    found = read({"preference": {"metrics": metrics}, "f1": others}, "f1", "preference")

    assert found == {
        "preference": {
            "metrics": {"accuracy": {"value": "NaN", "stderr": None}, "margin": {"value": "Infinity", "stderr": None}},
            "seconds": None,
        },
        "f1": {"metrics": {"f1": {"value": 2.0, "stderr": None}}, "seconds": None},
    }


def test_only_benchmarks_of_the_evaluation_and_their_metrics_are_read() -> None:
    many = {f"label-{n}": RESULT for n in range(1000)} | {"f1\0\udc80": RESULT}
    metrics = {**RESULT["metrics"], "more": {"value": 1}}

    assert read({**many, "f1": {**RESULT, "metrics": metrics}}, "f1", "bleu") == read({"f1": RESULT})
    assert read({"later": RESULT}, "later") == {}


@pytest.mark.parametrize("number", [10**400, -1, True, [], "\udc80"])
def test_a_number_of_another_form_or_size_is_left_out(number: object) -> None:
    found = read({"f1": {"metrics": {"f1": {"value": [number]}}, "n": number, "seconds": number, "tokens": number}})

    assert found == {"f1": {"metrics": {"f1": {"value": None, "stderr": None}}, "seconds": None}}
    assert read({"f1": {"metrics": {"f1": {"value": 10**400}}}})["f1"]["metrics"]["f1"]["value"] is None


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"benchmarks": []}', '{"benchmarks": {"f1": {"metrics": 3}}}', "[" * 100_000]
)
def test_another_form_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|no JSON object|nested"):
        results.read(content, ["f1"])


def test_samples_have_a_file_for_each_benchmark() -> None:
    assert results.samples_file("custom-brevity") == "samples-custom-brevity.jsonl"
