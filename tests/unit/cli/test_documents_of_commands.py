"""`--set`, variables, and jobs as models in the commands besides `submit`, against a small real HTTP server."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.client.inference.requests import model_of
from tests.builders.evaluation_answers import JOB_ID
from tests.builders.service_answers import CREATED as CREATED_SERVICE
from tests.builders.service_answers import service
from tests.builders.sweep_answers import DOCUMENT as SWEEP
from tests.doubles.scripted_server import ScriptedServer, success
from tests.systems.commands import run

CREATED = {
    "job_id": "job-1",
    "evaluation_id": "job-1",
    "sweep_id": "sweep-01900000-0000-7000-8000-000000000001",
    "status": "PENDING",
    "message": "",
    "warnings": [],
}
WANDB = """\
program: train.py
command: ["${env}", python, "${program}", "${args}"]
method: random
run_cap: 9
metric: {name: eval_loss, goal: minimize}
parameters: {learning_rate: {min: 0.0001, max: 0.1}}
"""


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setenv("RUN", "night")
    server.script(success(CREATED, 201))
    return server


def sent(server: ScriptedServer) -> Any:
    return json.loads(server.seen[-1][3])


def written(file: Path, document: object) -> str:
    file.write_text(json.dumps(document))
    return str(file)


def test_sweep_sets_values_of_the_job_inside(server: ScriptedServer, tmp_path: Path) -> None:
    job = {"name": "${RUN}-trial", "training_config": {"framework": {"custom_command": ["sh", "-c", "echo ${RANK}"]}}}
    file = written(tmp_path / "sweep.json", {**SWEEP, "job": job})

    answer = run(
        *("sweep", "submit", file, "--set", "job.training_config.hyperparameters.max_steps=200"),
        *("--set", "budget.max_trials=4", "--set", "job.labels.example.org/team=${RUN}"),
    )

    assert answer.exit_code == 0, answer.stderr
    assert sent(server)["budget"]["max_trials"] == 4
    assert sent(server)["job"] == {
        "name": "night-trial",
        "labels": {"example.org/team": "night"},
        "training_config": {**job["training_config"], "hyperparameters": {"max_steps": "200"}},  # type: ignore[dict-item]
    }


def test_sweep_file_of_wandb_keeps_its_own_macros(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "wandb.yaml").write_text(WANDB)
    job = {"name": "${RUN}", "training_config": {"framework": {"type": "CUSTOM", "custom_command": ["sh", "${RANK}"]}}}
    files = str(tmp_path / "wandb.yaml"), "--job", written(tmp_path / "job.json", job)

    answer = run("sweep", "submit", *files, "--wandb", "--set", "budget.max_trials=3")

    assert answer.exit_code == 0, answer.stderr
    command = sent(server)["job"]["training_config"]["framework"]["custom_command"]
    assert sent(server)["budget"]["max_trials"] == 3
    assert sent(server)["name"] == "night"
    assert command == ["sh", "${RANK}"]


def test_infer_sets_values_and_replaces_variables(server: ScriptedServer, tmp_path: Path) -> None:
    file = written(tmp_path / "batch.json", {"name": "${RUN}", "task": {"type": "generate", "max_new_tokens": 24}})

    answer = run("infer", file, "--set", "task.max_new_tokens=64", "--set", "model.model_uri=acme/base")

    assert answer.exit_code == 0, answer.stderr
    assert sent(server) == {
        "name": "night",
        "task": {"type": "generate", "max_new_tokens": 64},
        "model": {"model_uri": "acme/base"},
    }


def test_eval_run_sets_values_of_its_file(server: ScriptedServer, tmp_path: Path) -> None:
    file = written(tmp_path / "eval.json", {"name": "${RUN}", "benchmarks": [{"name": "loss", "dataset": "/a"}]})

    answer = run("eval", "run", JOB_ID, "--file", file, "--set", "benchmarks.0.num_samples=100", "-b", "loss:/b")

    assert answer.exit_code == 0, answer.stderr
    assert sent(server) == {
        "name": "night",
        "model": {"job_id": JOB_ID},
        "benchmarks": [{"name": "loss", "dataset": "/a", "num_samples": 100}, {"name": "loss", "dataset": "/b"}],
    }


def test_serve_sets_values_and_its_options_come_last(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(success(CREATED_SERVICE, 201), success(service()))
    file = written(tmp_path / "service.json", {"name": "${RUN}", "replicas": {"min": 1, "max": 4}})

    answer = run("serve", "acme/base", "--file", file, "--set", "replicas.max=2", "--set", "limits.x=1", "--min", "2")

    assert answer.exit_code == 0, answer.stderr
    assert json.loads(server.seen[0][3]) == {
        "name": "night",
        "model": {"model_uri": "acme/base"},
        "limits": {"x": 1},
        "replicas": {"min": 2, "max": 2},
    }


@pytest.mark.parametrize("command", [("sweep", "submit"), ("infer",), ("eval", "run", "-b", "loss:a", "--file")])
def test_variable_that_is_not_set_is_named_before_anything_is_sent(
    server: ScriptedServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = written(tmp_path / "a.json", {"name": "${NOT_SET_HERE}"})

    refused = run(*command, file)

    assert (refused.exit_code, "the variable NOT_SET_HERE" in refused.stderr) == (1, True)
    assert server.seen == []


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (f"{JOB_ID}@latest", {"job_id": JOB_ID, "checkpoint": "latest"}),
        ("@last", {"job_id": "@last"}),
        ("@last@best", {"job_id": "@last", "checkpoint": "best"}),
        ("job:sft", {"job_id": "sft"}),
        ("job:sft@ckpt-7", {"job_id": "sft", "checkpoint": "ckpt-7"}),
        ("job:a@b", {"job_id": "a@b"}),
        (f"job:{JOB_ID}@best", {"job_id": JOB_ID, "checkpoint": "best"}),
        ("job:@last@best", {"job_id": "@last", "checkpoint": "best"}),
        # What may be a directory, a registered name or a model of the hub is never a job.
        ("sft", {"model_uri": "sft"}),
        ("acme/base@best", {"model_uri": "acme/base@best"}),
        (JOB_ID[-8:], {"model_uri": JOB_ID[-8:]}),
    ],
)
def test_job_as_a_model(text: str, model: dict[str, str]) -> None:
    assert model_of(text) == model


@pytest.mark.parametrize("model", ["job:", "@last@newest", f"job:{'x' * 129}"])
def test_what_is_no_job_is_refused_before_anything_is_sent(server: ScriptedServer, model: str) -> None:
    refused = run("serve", model, "--name", "a")

    assert (refused.exit_code, server.seen) == (2, [])
