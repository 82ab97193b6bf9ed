"""Batches: rows in the order of records, shards that are handed over, stops, resumes, several ranks."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workers.trainers.inference.runs import RecordingSession, contents, lines_of, make_spec, run, write_lines
from workers.rank.run_context import Result, RunContext, RunSpec
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.batch import BatchTrainer

GENERATE: dict[str, Any] = {"task": {"max_new_tokens": 4}, "output": {"shard_records": 4}}


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "prompts.jsonl", ({"id": f"r{i}", "prompt": f"w{i} w{i + 1}"} for i in range(10)))


@pytest.fixture
def undisturbed(tmp_path: Path, prompts: Path) -> dict[str, bytes]:
    run(make_spec(tmp_path, prompts, GENERATE, run="undisturbed"))
    return contents(tmp_path / "undisturbed" / "output")


def test_each_record_has_its_row_in_order(tmp_path: Path, prompts: Path) -> None:
    result = run(make_spec(tmp_path, prompts, GENERATE))

    rows = lines_of(tmp_path / "run" / "output")
    assert [(row["index"], row["id"]) for row in rows] == [(i, f"r{i}") for i in range(10)]
    assert list(rows[0]) == ["index", "id", "output", "finish_reason", "prompt_tokens", "completion_tokens"]
    assert (result.step, result.tokens) == (10, 10 * (2 + 2))
    assert result.final_metrics["records"] == 10


def test_shards_are_handed_over_with_their_records_and_counts(tmp_path: Path, prompts: Path) -> None:
    spec = make_spec(tmp_path, prompts, GENERATE)
    session = RecordingSession(spec)

    run(spec, session)

    assert [(each["shard"], each["first_record"], each["records"], each["step"]) for each in session.positions] == [
        (0, 0, 4, 4),
        (1, 4, 4, 8),
        (2, 8, 2, 10),
    ]
    assert session.positions[2]["counts"] == {"failed": 0, "prompt_tokens": 4, "completion_tokens": 4}
    assert session.steps[0] == (0, 10)
    assert session.steps[-1] == (10, 10)
    assert session.phases == ["EVALUATING", "EXPORTING"]


def test_manifest_lists_every_other_file_and_the_counts(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    manifest = json.loads(undisturbed.pop("_manifest.json"))

    assert [file["path"] for file in manifest["files"]] == list(undisturbed)
    assert manifest["counts"] == {"records": 10, "failed": 0, "prompt_tokens": 20, "completion_tokens": 20}
    assert manifest["parts"][1]["files"] == ["part-00001.jsonl"]
    assert manifest["kind"] == "batch"
    assert manifest["model"]["model_id"] == "small"
    assert manifest["versions"].keys() == {"torch", "transformers"}


@pytest.mark.parametrize("stop_after", [0, 1, 2])
def test_interrupted_run_leaves_the_bytes_of_an_undisturbed_one(
    tmp_path: Path, prompts: Path, undisturbed: dict[str, bytes], stop_after: int
) -> None:
    first = make_spec(tmp_path, prompts, GENERATE, run="first")
    session = RecordingSession(first, stop_after=stop_after)
    stopped = run(first, session)
    second = resumed(tmp_path, prompts, session)

    finished = run(second)

    assert (stopped.stopped, stopped.step) == ("pause", 4 * stop_after)
    assert finished.stopped is None
    assert contents(second.run_dir / "output") == undisturbed


def test_resumed_run_reports_the_records_of_earlier_attempts(tmp_path: Path, prompts: Path) -> None:
    first = make_spec(tmp_path, prompts, GENERATE, run="first")
    session = RecordingSession(first, stop_after=2)
    run(first, session)
    second = resumed(tmp_path, prompts, session)
    later = RecordingSession(second)

    result = run(second, later)

    assert later.steps[0] == (8, 10)
    assert [each["shard"] for each in later.positions] == [2]
    assert result.final_metrics["completion_tokens"] == 20


def test_run_whose_shards_are_all_finished_only_writes_the_manifest(
    tmp_path: Path, prompts: Path, undisturbed: dict[str, bytes]
) -> None:
    first = make_spec(tmp_path, prompts, GENERATE, run="first")
    session = RecordingSession(first)
    run(first, session)
    second = resumed(tmp_path, prompts, session)
    later = RecordingSession(second)

    result = run(second, later)

    assert (result.step, later.positions) == (10, [])
    assert contents(second.run_dir / "output") == undisturbed


def test_parts_of_other_ranks_are_handed_over_by_the_first(
    tmp_path: Path, prompts: Path, undisturbed: dict[str, bytes]
) -> None:
    spec = make_spec(tmp_path, prompts, GENERATE, world_size=2)
    spec.run_dir.mkdir()
    (spec.run_dir / "work" / "claims").mkdir(parents=True)
    (spec.run_dir / "work" / "claims" / "0").touch()  # a third one has claimed it
    other = BatchTrainer(RunContext(spec, RecordingSession(spec, rank=1))).run()
    (spec.run_dir / "work" / "claims" / "0").unlink()
    session = RecordingSession(spec)

    result = run(spec, session)

    assert (other.step, result.step) == (0, 10)
    assert [each["shard"] for each in session.positions] == [0, 1, 2]
    assert contents(spec.run_dir / "output") == undisturbed


def test_first_rank_waits_for_parts_of_others(tmp_path: Path, prompts: Path, undisturbed: dict[str, bytes]) -> None:
    spec = make_spec(tmp_path, prompts, GENERATE, world_size=2)
    claim = spec.run_dir / "work" / "claims" / "2"
    claim.parent.mkdir(parents=True)
    claim.touch()
    session = RecordingSession(spec)
    others: list[Result] = []

    def answer_the_last_shard() -> None:
        session.wait_for_step(8)
        claim.unlink()
        others.append(BatchTrainer(RunContext(spec, RecordingSession(spec, rank=1))).run())

    thread = threading.Thread(target=answer_the_last_shard)
    thread.start()
    result = run(spec, session)
    thread.join()

    assert (result.step, others) == (10, [Result()])
    assert contents(spec.run_dir / "output") == undisturbed


def test_records_without_an_answer_have_an_error_in_their_row(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "d.jsonl", [{"prompt": "w1"}, {"prompt": "w1 " * 20}, {"text": "w1"}, {"prompt": ""}])
    section = {**GENERATE, "on_error": {"max_share": 0.75}}

    result = run(make_spec(tmp_path, data, section))

    rows = lines_of(tmp_path / "run" / "output")
    assert [row.get("error", {}).get("code") for row in rows] == [
        None,
        "CONTEXT_TOO_LONG",
        "RECORD_INVALID",
        "RECORD_INVALID",
    ]
    assert rows[1]["output"] is None
    assert rows[2]["error"]["where"] == "d.jsonl line 3"
    assert result.final_metrics["failed_records"] == 3


def test_too_many_errors_end_the_job_and_name_the_first(tmp_path: Path) -> None:
    rows = [{"prompt": "w1 " * 20} if i in (1, 6) else {"prompt": "w1"} for i in range(10)]
    data = write_lines(tmp_path / "d.jsonl", rows)

    with pytest.raises(DataInvalid, match=r"at least 2 of 10 .* 0.1 .* line 2: CONTEXT_TOO_LONG .* line 7: CONTEXT"):
        run(make_spec(tmp_path, data, {**GENERATE, "on_error": {"max_share": 0.1}}))


def test_errors_of_earlier_attempts_count(tmp_path: Path) -> None:
    rows = [{"prompt": "w1 " * 20} if i in (1, 6) else {"prompt": "w1"} for i in range(10)]
    data = write_lines(tmp_path / "d.jsonl", rows)
    section = {**GENERATE, "on_error": {"max_share": 0.1}}
    first = make_spec(tmp_path, data, section, run="first")
    session = RecordingSession(first, stop_after=1)
    run(first, session)

    with pytest.raises(DataInvalid, match="at least 2 of 10"):
        run(resumed(tmp_path, data, session, section))


def test_first_error_ends_a_job_that_asks_for_it(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "d.jsonl", [{"prompt": "w1"}, {"other": 1}])

    with pytest.raises(DataInvalid, match=r"on_error.action is fail: d.jsonl line 2: RECORD_INVALID"):
        run(make_spec(tmp_path, data, {**GENERATE, "on_error": {"action": "fail"}}))


def test_several_nodes_are_refused(tmp_path: Path, prompts: Path) -> None:
    document = make_spec(tmp_path, prompts, GENERATE).to_document()
    gang = {"node_rank": 0, "nodes": 2, "local_ranks": 1, "address": "", "port": 1, "interface": ""}

    with pytest.raises(InvalidConfig, match="runs on one node"):
        run(RunSpec.from_document({**document, "gang": gang}))


def resumed(directory: Path, data: Path, session: RecordingSession, section: dict[str, Any] | None = None) -> RunSpec:
    """The next attempt, as a supervisor prepares it: the files of stored shards lie in its output."""
    numbers = tuple(each["shard"] for each in session.positions)
    spec = make_spec(directory, data, section or GENERATE, run="second", finished_shards=numbers)
    output = spec.run_dir / "output"
    output.mkdir(parents=True)
    for part in session.parts:
        for path in part.iterdir():
            if path.name != "manifest.json":
                (output / path.name).write_bytes(path.read_bytes())
    assert all((output / name).exists() for name in (f"counts-{number:05d}.json" for number in numbers))
    return spec
