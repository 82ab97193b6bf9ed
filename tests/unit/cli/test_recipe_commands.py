"""`trainyard recipes`: list, show, submit."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli.main import main
from app.services.recipes import recipes
from tests.doubles.scripted_server import ScriptedServer, success

SUBMITTED: dict[str, Any] = {
    "job_id": "job-1",
    "status": "PENDING",
    "message": "",
    "estimated_wait_seconds": None,
    "warnings": [],
}
NAME = "llama-3.1-8b-qlora-24gb"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["recipes", *arguments])


def listed(*arguments: str) -> list[dict[str, object]]:
    result = run("list", "--json", *arguments)
    assert result.exit_code == 0
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_list_has_all_and_narrows_them_down() -> None:
    assert len(listed()) == len(recipes())
    assert {each["family"] for each in listed("--family", "qwen")} == {"qwen"}
    assert {each["method"] for each in listed("--method", "dpo")} == {"DPO"}
    small = listed("--gpu-memory", "24")
    assert {each["gpu_memory_gb"] for each in small} == {24}
    assert len(small) < len(listed("--gpu-memory", "48"))
    assert {each["gpu_count"] for each in listed("--gpus", "1")} == {1}


def test_table_names_model_and_hardware() -> None:
    lines = run("list", "--method", "QLORA", "--gpu-memory", "24").stdout.splitlines()

    found = next(line for line in lines if line.startswith(NAME))
    assert found.split(maxsplit=3) == [NAME, "QLORA", "meta-llama/Llama-3.1-8B-Instruct", "HF_TRAINER  1 × 24 GB"]


def test_show_prints_the_file_with_its_reasons() -> None:
    result = run("show", NAME)

    assert yaml.safe_load(result.stdout)["name"] == NAME
    assert result.stdout.startswith("# QLoRA of Llama 3.1 8B on one GPU of 24 GB.\n")
    assert "# QLoRA, table 9" in result.stdout


def test_every_recipe_explains_itself() -> None:
    for each in recipes():
        assert each.summary.endswith("."), each.name
        assert each.data, each.name
        assert each.sources[0], each.name
        assert each.document["name"] == each.document["labels"]["recipe"] == each.name
        assert each.name.partition("-")[0].startswith(each.family), each.name


def test_submit_takes_data_and_changes(server: ScriptedServer) -> None:
    server.script(success(SUBMITTED, 201))

    result = run(
        *("submit", NAME, "--data", "/srv/a.jsonl", "--data", "/srv/b.jsonl", "--validation", "/srv/v.jsonl"),
        *("--set", "training_config.hyperparameters.max_steps=200", "--set", "data_config.batch_size=2"),
        *("--job-name", "mine"),
    )

    assert (result.exit_code, result.stdout) == (0, "job-1\n")
    document = json.loads(server.seen[0][3])
    assert document["name"] == "mine"
    assert document["training_config"]["hyperparameters"]["max_steps"] == "200"
    assert document["data_config"]["batch_size"] == 2
    assert document["data_config"]["sources"] == [
        {"path": "/srv/a.jsonl"},
        {"path": "/srv/b.jsonl"},
        {"path": "/srv/v.jsonl", "split": "validation"},
    ]
    assert "validation_split" not in document["data_config"]


def test_submit_replaces_variables_of_the_environment(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS", "/srv/corpus")
    server.script(success(SUBMITTED, 201))

    assert run("submit", NAME, "--data", "${CORPUS}/a.jsonl").exit_code == 0

    assert json.loads(server.seen[0][3])["data_config"]["sources"] == [{"path": "/srv/corpus/a.jsonl"}]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    result = run("show", "llama-3.1-8b-qlora-24g")

    assert result.exit_code == 2
    assert f"did you mean {NAME}?" in result.stderr


def test_submit_asks_for_data() -> None:
    assert "--data" in run("submit", NAME).stderr
