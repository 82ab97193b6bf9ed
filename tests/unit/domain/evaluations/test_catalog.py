"""The catalog finds benchmarks, refuses what can't be measured, and names the field that is wrong."""

import re
from typing import Any

import pytest

from app.domain.evaluations import catalog
from app.domain.evaluations.catalog import BENCHMARKS, BadBenchmark
from app.domain.spec.inference import Benchmark


def benchmark(name: str = "f1", **values: Any) -> Benchmark:
    return Benchmark(**{"name": name, "dataset": 0, **values})


def refusal(of: Benchmark) -> BadBenchmark:
    with pytest.raises(BadBenchmark) as caught:
        catalog.check(of)
    return caught.value


@pytest.mark.parametrize("name", [name for name, found in BENCHMARKS.items() if not found.takes_argument])
def test_every_benchmark_is_measured_with_its_defaults(name: str) -> None:
    needed = {"service": "judge"} if name == "judge" else {}

    catalog.check(benchmark(name, parameters=needed))

    assert set(catalog.values(benchmark(name))) == set(BENCHMARKS[name].parameters)


@pytest.mark.parametrize("found", BENCHMARKS.values(), ids=str)
def test_defaults_are_values_that_users_may_give(found: catalog.BenchmarkType) -> None:
    for parameter in found.parameters.values():
        if parameter.default is not None:
            parameter.check(parameter.default)

    assert found.describe()["metrics"]


@pytest.mark.parametrize("name", ["bleurt", "f1:squad", "", "custom"])
def test_an_unknown_benchmark_lists_the_known_ones(name: str) -> None:
    error = refusal(benchmark(name))

    assert error.field == "name"
    assert "custom:/path/metric.py" in error.message


def test_a_benchmark_without_its_dataset_names_the_columns_that_it_reads() -> None:
    error = refusal(benchmark("choices", dataset=None))

    assert (error.field, error.message) == (
        "dataset",
        "choices needs a dataset, whose records have prompt, choices, answer",
    )


@pytest.mark.parametrize(
    "name",
    [
        "custom:metric.py",
        "custom:data/metric.py",
        "custom:/data/.py",
        "custom:/data/..py",
        "custom:s3://",
        "custom:/m.sh",
    ],
)
def test_a_custom_metric_is_named_by_an_absolute_path_or_a_uri(name: str) -> None:
    assert "absolute path or a URI" in refusal(benchmark(name)).message


def task(name: str = "lm_eval:arc_easy", **parameters: Any) -> Benchmark:
    return benchmark(name, dataset=None, parameters={"task_dir": "/srv/tasks", **parameters})


def test_a_task_of_the_harness_has_a_directory_and_its_name_in_files_and_curves() -> None:
    found = task("lm_eval:mmlu.v2", num_fewshot=5)

    catalog.check(found)

    assert catalog.files(found) == [("/srv/tasks", "parameters.task_dir")]
    assert catalog.label(found.name) == "lm_eval-mmlu.v2"


@pytest.mark.parametrize(
    ("found", "field", "said"),
    [
        (task("lm_eval:"), "name", "lm_eval:TASK"),
        (task("lm_eval:../x"), "name", "lm_eval:TASK"),
        (benchmark("lm_eval:arc"), "dataset", "leave dataset out"),
        (benchmark("lm_eval:arc", dataset=None), "parameters.task_dir", "data_files"),
        (task(task_dir=""), "parameters.task_dir", "characters"),
        (task(num_fewshot=-1), "parameters.num_fewshot", ">= 0"),
        (task(temperature=1.0), "parameters.temperature", "known: task_dir"),
    ],
)
def test_a_task_that_can_not_be_measured_is_refused(found: Benchmark, field: str, said: str) -> None:
    error = refusal(found)

    assert (error.field, said in error.message) == (field, True)


def test_long_names_have_short_labels_that_differ() -> None:
    labels = {catalog.label(f"custom:/data/{'m' * 300}{n}.py") for n in range(3)}

    assert [len(each) for each in labels] == [60] * 3


@pytest.mark.parametrize("count", [0, -1, catalog.MOST_SAMPLES + 1])
def test_the_number_of_samples_is_in_its_range(count: int) -> None:
    assert refusal(benchmark(num_samples=count)).field == "num_samples"


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("f1", "max_new_tokens", 0),
        ("f1", "max_new_tokens", True),
        ("f1", "max_new_tokens", 1.5),
        ("f1", "temperature", 2.5),
        ("f1", "temperature", float("nan")),
        ("f1", "temperature", "1"),
        ("f1", "stop", ["a", "b", "c", "d", "e"]),
        ("f1", "stop", [""]),
        ("f1", "stop", "text"),
        ("f1", "normalize", "lower"),
        ("f1", "answer", None),
        ("loss", "completion_only_loss", 1),
        ("loss", "temperature", 1.0),
        ("reward", "reward", "length:many"),
        ("reward", "reward", "judge"),
    ],
)
def test_a_parameter_of_another_kind_or_range_is_refused(name: str, parameter: str, value: object) -> None:
    assert refusal(benchmark(name, parameters={parameter: value})).field == f"parameters.{parameter}"


@pytest.mark.parametrize("reward", ["length:64", "regex:[0-9]+", "exact", "exact:solution", "/data/judge.py"])
def test_a_reward_has_the_forms_of_trainings(reward: str) -> None:
    found = benchmark("reward", parameters={"reward": reward})

    catalog.check(found)

    assert catalog.files(found) == ([(reward, "parameters.reward")] if reward.endswith(".py") else [])


def test_given_parameters_replace_defaults() -> None:
    assert catalog.values(benchmark(parameters={"temperature": 1}))["temperature"] == 1
    assert catalog.values(benchmark())["temperature"] == 0.0


def test_a_custom_metric_is_a_python_file_and_has_a_name_for_files_and_curves() -> None:
    found = benchmark("custom:/data/my metric.py")

    catalog.check(found)

    assert catalog.files(found) == [("/data/my metric.py", "name")]
    assert catalog.label(found.name) == "custom-my_metric"


def test_labels_are_names_of_files() -> None:
    labels = [catalog.label(name) for name in (*BENCHMARKS, "custom:/a/../ü.py", "custom:s3://b/m.py")]

    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", label) for label in labels)


def test_the_same_benchmark_twice_is_refused_with_the_way_out() -> None:
    with pytest.raises(BadBenchmark, match=r"benchmarks 0 and 2 are both f1: .* evaluation of its own") as caught:
        catalog.check_all([benchmark(), benchmark("bleu"), benchmark(dataset=1)])

    assert caught.value.field == "2.name"


def test_an_error_in_a_list_names_the_place() -> None:
    with pytest.raises(BadBenchmark) as caught:
        catalog.check_all([benchmark(), benchmark("bleu", num_samples=0)])

    assert caught.value.field == "1.num_samples"
