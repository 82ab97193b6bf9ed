"""`trainyard import`: what it prints, writes and submits."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli.client.imports.keys import UNKNOWN
from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, success

AXOLOTL = {
    "base_model": "/srv/models/base",
    "datasets": [{"path": "/srv/data/train.jsonl", "type": "chat_template"}],
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "learning_rate": 1e-5,
    "use_comet": True,
    "unheard_of": [1],
}
LLAMA_FACTORY = {"model_name_or_path": "/srv/models/base", "stage": "sft", "finetuning_type": "full", "dataset": "mine"}
SUBMITTED: dict[str, Any] = {
    "job_id": "job-1",
    "status": "PENDING",
    "message": "",
    "estimated_wait_seconds": None,
    "warnings": [],
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["import", *arguments])


def written(folder: Path, config: object, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return str(path)


def test_prints_the_document_and_what_it_leaves_out(tmp_path: Path) -> None:
    result = run(written(tmp_path, AXOLOTL))

    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["data_config"]["gradient_accumulation_steps"] == 4
    assert result.stderr.splitlines() == [
        "Not carried over: use_comet: true: tracking sends metrics to MLflow, Trackio and W&B: docs/how-to/tracking.md",
        f"Not carried over: unheard_of: [1]: {UNKNOWN}",
    ]


def test_json_has_both_in_one_object(tmp_path: Path) -> None:
    result = run(written(tmp_path, AXOLOTL), "--gpus", "4", "--json")

    found = json.loads(result.stdout)
    assert found["document"]["resource_config"]["gpu_count"] == 4
    assert [left["key"] for left in found["not_carried_over"]] == ["use_comet", "unheard_of"]
    assert result.stderr == ""


def test_writes_a_file_that_submit_reads(tmp_path: Path, server: ScriptedServer) -> None:
    file = tmp_path / "job.yaml"
    server.script(success(SUBMITTED, 201))

    result = run(written(tmp_path, LLAMA_FACTORY), "-o", str(file))
    submitted = CliRunner().invoke(main, ["submit", str(file)])

    assert (result.exit_code, result.stdout) == (0, "")
    assert (submitted.exit_code, submitted.stdout) == (0, "job-1\n")
    assert json.loads(server.seen[0][3]) == yaml.safe_load(file.read_text())


@pytest.mark.parametrize("place", ["missing/job.yaml", "file/job.yaml"])
def test_file_that_cannot_be_written_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")

    result = run(written(tmp_path, LLAMA_FACTORY), "-o", str(tmp_path / place))

    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True)
    assert f"Error: {tmp_path / place} can't be written: " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("config", [AXOLOTL, LLAMA_FACTORY])
@pytest.mark.parametrize("command", ["submit", "validate"])
def test_configuration_in_place_of_a_document_is_told_the_way(
    tmp_path: Path, server: ScriptedServer, config: object, command: str
) -> None:
    file = written(tmp_path, config)

    refused = CliRunner().invoke(main, [command, file])

    assert (refused.exit_code, server.seen) == (1, [])
    assert f"convert it with `trainyard import {file}`" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_submits(tmp_path: Path, server: ScriptedServer) -> None:
    server.script(success(SUBMITTED, 201))

    result = run(written(tmp_path, AXOLOTL), "--submit")

    assert result.stdout == "job-1\n"
    assert json.loads(server.seen[0][3])["training_config"]["training_type"] == "SFT"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "job", "training_config": {}}, "trainyard submit takes job documents"),
        ({**AXOLOTL, "rl": "kto"}, "rl: kto has no training type; known: dpo, ipo, grpo"),
        ({**AXOLOTL, "micro_batch_size": "two"}, 'micro_batch_size: "two" is no value of this key'),
        ({**AXOLOTL, "datasets": 3}, "datasets: 3 is no value of this key"),
        ({**AXOLOTL, "lr_scheduler_kwargs": [1]}, "lr_scheduler_kwargs: [1] is no value of this key"),
        ({**LLAMA_FACTORY, "cutoff_len": {}}, "cutoff_len: {} is no value of this key"),
        ([1], "is not a mapping of fields"),
    ],
)
def test_what_is_no_configuration_is_one_line(tmp_path: Path, config: object, message: str) -> None:
    result = run(written(tmp_path, config))

    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
