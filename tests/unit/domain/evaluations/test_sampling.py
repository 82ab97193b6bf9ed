"""Answers of benchmarks are sampled within the limits of batches, and what has no effect is said."""

from typing import Any

import pytest

from app.domain.evaluations import catalog, sampling
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.spec.inference import Benchmark
from app.domain.spec.rules.inference import LONGEST_STOP, MOST_ANSWER_TOKENS


def refusal(name: str, **parameters: Any) -> BadBenchmark:
    with pytest.raises(BadBenchmark) as caught:
        catalog.check(Benchmark(name=name, dataset=0, parameters=parameters))
    return caught.value


@pytest.mark.parametrize(
    ("parameter", "value", "said"),
    [
        ("max_new_tokens", MOST_ANSWER_TOKENS + 1, "a whole number >= 1 and <= 131072"),
        ("top_k", 2**20 + 1, "<= 1048576"),
        ("top_p", 0, "top_p 0 leaves no token"),
        ("min_p", 1, "set temperature to 0"),
        ("repetition_penalty", 0.0, "1 is none"),
        ("repetition_penalty", 10.5, "a number >= 0 and <= 10"),
        ("stop", ["a" * (LONGEST_STOP + 1)], "1 to 256 characters"),
    ],
)
def test_limits_are_those_of_batches(parameter: str, value: object, said: str) -> None:
    error = refusal("f1", **{parameter: value})

    assert (error.field, said in error.message) == (f"parameters.{parameter}", True), error.message


def test_every_benchmark_that_generates_has_them() -> None:
    assert refusal("custom:/data/metric.py", top_p=0).field == "parameters.top_p"


@pytest.mark.parametrize(
    ("name", "parameter"), [("f1", "answer"), ("choices", "choices"), ("choices", "answer"), ("regex", "pattern")]
)
def test_a_column_has_a_name(name: str, parameter: str) -> None:
    assert "1 to 4096 characters" in refusal(name, **{parameter: ""}).message


def test_a_pattern_is_of_a_column_or_the_same_for_all() -> None:
    error = refusal("regex", answer="form", pattern="a")

    assert (error.field, "leave one of them out" in error.message) == ("parameters.answer", True)


def test_sampling_without_effect_is_named_with_its_place() -> None:
    (warning,) = sampling.warnings({"top_k": 5, "answer": "a"}, "benchmarks.1")

    assert warning == "benchmarks.1.parameters.top_k: no effect at temperature 0, which takes the likeliest token"
    assert not sampling.warnings({"top_k": 5, "temperature": 1}, "benchmarks.1")
