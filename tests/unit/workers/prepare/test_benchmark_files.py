"""Files that benchmarks run are found on the node where the project may read them, and nowhere else."""

import os
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from workers.attempt_failed import AttemptFailed
from workers.prepare.benchmark_files import find_benchmark_files
from workers.prepare.inputs.input_library import Library


def document(*benchmarks: dict[str, Any]) -> JobDocument:
    return JobDocument.from_json({"kind": "evaluation", "inference": {"benchmarks": list(benchmarks)}})


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for name in ("mine/metric.py", "mine/judge.py", "out/secret.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("pass\n")
    rules = ReadingRules(roots=(str(tmp_path / "mine"),), data_dir="", real_path=os.path.realpath)
    return Library(rules=rules, cache_dir=tmp_path / "cache", project="ours", project_of_job=lambda _: None)


def test_custom_metrics_and_rewards_are_found_by_their_location(library: Library, tmp_path: Path) -> None:
    metric, judge = str(tmp_path / "mine/metric.py"), str(tmp_path / "mine/judge.py")
    measured = document(
        {"name": f"custom:{metric}"},
        {"name": "reward", "parameters": {"reward": judge}},
        {"name": "reward", "parameters": {"reward": "length:4"}},
        {"name": "lm_eval:arc", "parameters": {"task_dir": str(tmp_path / "mine")}},
        {"name": "f1"},
    )
    tasks = {str(tmp_path / "mine"): tmp_path / "mine"}

    assert find_benchmark_files(library, measured) == {metric: Path(metric), judge: Path(judge), **tasks}
    assert find_benchmark_files(library, JobDocument()) == {}


@pytest.mark.parametrize("place", ["mine/missing.py", "out/secret.py", "mine"])
def test_a_file_that_may_not_be_read_is_named(library: Library, tmp_path: Path, place: str) -> None:
    with pytest.raises(AttemptFailed, match=place):
        find_benchmark_files(library, document({"name": f"custom:{tmp_path / place}"}))


@pytest.mark.parametrize("place", ["mine/missing", "out", "mine/metric.py"])
def test_a_directory_of_tasks_that_may_not_be_read_is_named(library: Library, tmp_path: Path, place: str) -> None:
    benchmark = {"name": "lm_eval:arc", "parameters": {"task_dir": str(tmp_path / place)}}

    with pytest.raises(AttemptFailed, match=place):
        find_benchmark_files(library, document(benchmark))
