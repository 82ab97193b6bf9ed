"""An output of more files than the operator allows is refused before any record is answered."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.workers.trainers.inference.runs import RecordingSession, lines_of, make_spec, run, write_lines
from workers.trainers.failures import InvalidConfig

TASK = {"task": {"max_new_tokens": 4}}


@pytest.mark.parametrize("format_", ["npy", "safetensors"])
def test_lists_of_errors_beside_the_parts_are_counted(tmp_path: Path, format_: str) -> None:
    data = write_lines(tmp_path / "texts.jsonl", ({"text": f"w{i}"} for i in range(16)))
    section = {"task": {"type": "embed"}, "output": {"format": format_, "shard_records": 2}}
    spec = replace(make_spec(tmp_path, data, section), max_output_files=20)

    with pytest.raises(InvalidConfig, match=r"8 parts of up to 2 files, .*allows 20 files; set it to 4 or more"):
        run(spec)


def test_too_many_parts_are_refused_with_the_size_that_fits(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "prompts.jsonl", ({"prompt": f"w{i}"} for i in range(30)))
    spec = replace(make_spec(tmp_path, data, {**TASK, "output": {"shard_records": 2}}), max_output_files=20)
    session = RecordingSession(spec)

    with pytest.raises(InvalidConfig, match=r"2 records in each make 15 parts.*allows 20 files; set it to 4 or more"):
        run(spec, session)

    assert session.positions == []
    run(replace(spec, inference={**TASK, "output": {"shard_records": 4}}, run_dir=tmp_path / "again"))
    assert len(lines_of(tmp_path / "again" / "output")) == 30
