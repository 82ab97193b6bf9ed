"""What an inspection finds in the first records of inference jobs and evaluations, without model and device."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from workers.trainers import inspection

Findings = dict[str, Any]
QUESTIONS = [{"prompt": f"{n} + {n}?", "answer": str(2 * n), "choices": ["2", "4"], "right": n % 2} for n in range(20)]
JSON_TASK = "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\ntest_split: test\n"
TASKS = {
    "near": "dataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\nprocess_docs: !function code.run\n",
    "far": "dataset_path: someone/elsewhere\n",
    "beside": "dataset_path: rows\n",
    "own": "custom_dataset: !function code.run\ndataset_path: someone/elsewhere\n",
}


def inspected(
    path: Path,
    rows: Sequence[object],
    inference: Mapping[str, Any],
    *,
    kind: str = "BATCH",
    rows_read: int = 1000,
    source: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Findings:
    file = path / "rows.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return inspection.inspect(
        {
            "run_dir": str(path),
            "framework": "TRANSFORMERS",
            "training_type": kind,
            "hyperparameters": {},
            "model_path": "",
            "data_paths": [str(file)],
            "data_config": {"sources": [{"path": str(file), **(source or {})}], **spec.pop("data_config", {})},
            "inference": inference,
            "rows": rows_read,
            "has_weights": False,
            **spec,
        }
    )


def evaluated(path: Path, *benchmarks: Mapping[str, Any], rows: Sequence[object] = QUESTIONS, **spec: Any) -> Findings:
    given = [{"dataset": 0, **each} for each in benchmarks]
    return inspected(path, rows, {"benchmarks": given}, kind="EVALUATION", **spec)


def only_error(findings: Findings) -> tuple[str, str]:
    (error,) = findings["errors"]
    return error["error_type"], error["message"]


def test_first_records_of_a_batch_are_described(tmp_path: Path) -> None:
    found = inspected(tmp_path, QUESTIONS, {"output": {"keep_columns": ["answer"]}}, rows_read=5)

    (source,) = found["sources"]
    assert (found["errors"], found["warnings"], found["left_out"]) == ([], [], [])
    assert (source["records_read"], source["complete"]) == (5, False)
    assert source["columns"] == ["answer", "choices", "prompt", "right"]
    assert [each["tokens"] for each in source["first_records"]] == [None] * 3


@pytest.mark.parametrize(
    ("rows", "inference", "changes", "said"),
    [
        ([{"question": "a"}] * 3, {}, {}, "rows.jsonl line 1 has neither prompt, nor messages"),
        ([{"prompt": "a"}, "{"], {}, {}, "rows.jsonl line 2"),
        ([], {}, {}, "rows.jsonl is empty"),
        ([{"prompt": "a"}], {}, {"source": {"filters": [{"column": "prompt", "op": "==", "value": "b"}]}}, "filters"),
        ([{"prompt": "a"}, {"text": ""}], {"on_error": {"action": "fail"}}, {}, "on_error.action is fail: rows.jsonl"),
        ([{"prompt": "a"}], {"task": {"type": "loglikelihood"}}, {}, "has neither prompt and completion, nor text"),
        ([{"a": 1}], {"task": {"type": "embed"}}, {"kind": "FEATURES"}, "has neither text, nor prompt"),
    ],
)
def test_what_would_end_the_job_on_its_node_is_an_error(
    tmp_path: Path, rows: Any, inference: Any, changes: Any, said: str
) -> None:
    kind, message = only_error(inspected(tmp_path, rows, inference, **changes))

    assert kind == "DATA_INVALID"
    assert said in message


def test_columns_to_keep_are_looked_for_where_all_rows_have_the_same(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("prompt,id\nhello,1\n")
    paths: Any = {"data_paths": [str(tmp_path / "table.csv")]}
    source = {"path": str(tmp_path / "table.csv"), "format": "csv"}

    found = inspected(tmp_path, [], {"output": {"keep_columns": ["topic"]}}, source=source, **paths)

    assert only_error(found) == ("DATA_INVALID", "table.csv has no column topic, which output.keep_columns names")


def test_few_records_without_an_answer_are_warned_of(tmp_path: Path) -> None:
    rows = [{"prompt": "a"}] * 3 + [{"prompt": ""}]

    allowed = inspected(tmp_path, rows, {"on_error": {"max_share": 0.25}})
    beyond = inspected(tmp_path, rows, {"on_error": {"max_share": 0.2}})
    first = inspected(tmp_path, [*rows[::-1], *rows[:3] * 3], {"on_error": {"max_share": 0.1}}, rows_read=2)
    drawn = inspected(tmp_path, rows, {}, source={"sampling": {"count": 2}})

    assert "at least 1 of 4 records have no answer, on_error.max_share allows 0.2" in only_error(beyond)[1]
    for found, read in ((allowed, 4), (first, 2), (drawn, 4)):
        assert found["errors"] == []
        assert found["warnings"][0].startswith(f"1 of the first {read} records of rows.jsonl have no answer: ")


@pytest.mark.parametrize(
    ("benchmark", "rows", "said"),
    [
        ({"name": "exact_match"}, [{"prompt": "a"}], "record 0 (rows.jsonl line 1): it has no column answer"),
        ({"name": "f1", "parameters": {"answer": "gold"}}, QUESTIONS, "it has no column gold"),
        ({"name": "bleu"}, [*QUESTIONS, {"prompt": "a", "answer": {}}], "record 20 (rows.jsonl line 21): column"),
        ({"name": "regex"}, [{"prompt": "a", "answer": "("}], "record 0 (rows.jsonl line 1)"),
        ({"name": "choices", "parameters": {"answer": "right"}}, [{"prompt": "a", "choices": ["b"]}], "two or more"),
        ({"name": "choices"}, [{"prompt": "a", "choices": ["b", "c"], "answer": "d"}], "must be one of the choices"),
        ({"name": "preference"}, QUESTIONS, "has no column chosen, rejected"),
        ({"name": "loss"}, [{"prompt": "a"}], "has neither messages, nor prompt and completion, nor text"),
        ({"name": "reward", "parameters": {"reward": "exact:gold"}}, QUESTIONS, "gold"),
        ({"name": "json_valid"}, [{"question": "a"}], "has neither prompt, nor messages"),
        ({"name": "custom:/data/metric.py"}, [], "rows.jsonl is empty"),
    ],
)
def test_records_that_a_benchmark_can_not_use_are_an_error(
    tmp_path: Path, benchmark: Any, rows: Any, said: str
) -> None:
    kind, message = only_error(evaluated(tmp_path, benchmark, rows=rows))

    assert kind in ("DATA_INVALID", "INVALID_CONFIG")
    assert said in message


def test_records_that_there_is_no_time_for_are_left_to_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.trainers.inference.inspection.READ_SECONDS", -1.0)
    nothing_passes = {"filters": [{"column": "prompt", "op": "==", "value": "b"}]}

    batch = inspected(tmp_path, QUESTIONS, {}, source=nothing_passes)
    evaluation = evaluated(tmp_path, {"name": "f1"}, source=nothing_passes)

    assert (batch["errors"], batch["sources"][0]["complete"]) == ([], False)
    assert (evaluation["errors"], evaluation["left_out"]) == ([], ["benchmark f1: rows.jsonl was not read in time"])


def test_datasets_of_benchmarks_are_described_once(tmp_path: Path) -> None:
    choices = {"name": "choices", "parameters": {"answer": "right"}}

    found = evaluated(tmp_path, {"name": "f1"}, choices, {"name": "contains", "num_samples": 3}, rows_read=10)

    (source,) = found["sources"]
    assert (found["errors"], source["records_read"], source["complete"]) == ([], 10, False)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tasks")
    (directory / "rows").mkdir()
    (directory / "code.py").write_text(f"open({str(directory / 'ran')!r}, 'w')\ndef run(docs=None):\n    return docs\n")
    for name, text in TASKS.items():
        (directory / f"{name}.yaml").write_text(f"task: {name}\n{JSON_TASK}{text}")
    (directory / "broken.yaml").write_text("task: broken\ninclude: missing.yaml\n")
    return directory


def test_data_of_a_task_on_the_hub_is_an_error_and_its_functions_do_not_run(tmp_path: Path, tasks: Path) -> None:
    def of_task(name: str) -> Findings:
        benchmark = {"name": f"lm_eval:{name}", "dataset": None, "parameters": {"task_dir": "/tasks"}}
        return evaluated(tmp_path, benchmark, benchmark_files={"/tasks": str(tasks)})

    for name in ("near", "beside", "own"):
        assert of_task(name)["errors"] == [], name
    far, missing, broken = (only_error(of_task(name)) for name in ("far", "gone", "broken"))
    assert far[0] == "DATA_NOT_FOUND"
    assert "its data (someone/elsewhere) is on the hub; jobs fetch nothing from the hub: put the data into" in far[1]
    assert missing[0] == "INVALID_CONFIG"
    assert "describes this task; tasks there: " in missing[1]
    assert "broken.yaml can't be loaded" in broken[1]
    assert not (tasks / "ran").exists()


def test_records_are_inspected_without_the_training_libraries() -> None:
    code = "import sys, workers.trainers.inference.inspection; sys.exit(any(n in sys.modules for n in sys.argv[1:]))"

    subprocess.run([sys.executable, "-c", code, "torch", "transformers", "datasets"], check=True)
