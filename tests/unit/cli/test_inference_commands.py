"""`trainyard infer` and `trainyard eval`, against a small real HTTP server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.client import watch as watching
from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, failure, running, success

JOB_ID = "job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"
DOCUMENT = {"name": "label", "model": {"job_id": JOB_ID}, "task": {"type": "generate"}}
CREATED = {
    "job_id": "job-1",
    "status": "PENDING",
    "message": "",
    "estimated_wait_seconds": None,
    "warnings": ["task.x: no effect"],
}
PLAN = {"queue": "default", "candidate_nodes": [{"name": "n1", "fits_now": True, "reason": ""}]}
COMPARISON = {
    "baseline": "job-2",
    "comparisons": [
        {
            "benchmark": "choices",
            "metric": "accuracy",
            "values": {"job-1": 0.615, "job-2": 0.265},
            "differences": [
                {
                    "id": "job-1",
                    "difference": 0.35,
                    "interval": [0.27, 0.43],
                    "p_value": 0.0001,
                    "n": 200,
                    "changes": 71,
                    "changed": [{"index": 3, "from": 0, "to": 1}],
                }
            ],
            "notes": ["the seeds differ"],
        }
    ],
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with running() as server:
        monkeypatch.setenv("TRAINYARD_URL", server.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", "the-key")
        monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
        yield server


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "batch.json").write_text(json.dumps(DOCUMENT))
    return str(tmp_path / "batch.json")


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


def job(status: str, **more: Any) -> dict[str, Any]:
    common = {"job_id": "job-1", "name": "n", "kind": "batch", "attempt": 1, "node_names": ["local"]}
    return {**common, "status": status, "total_steps": 120_000, "elapsed_seconds": 92.0, **more}


def evaluation(**more: Any) -> dict[str, Any]:
    measured = {"accuracy": {"value": 0.615, "stderr": 0.0344}, "accuracy_by_length": {"value": 0.6, "stderr": None}}
    found = {
        "evaluation_id": "job-1",
        "name": "n",
        "project": "default",
        "created_by": "key-1",
        "created_at": "2026-05-17T09:30:00.000Z",
        "status_reason": "",
        "pending_reason": "no device is free",
        "error_type": None,
        "elapsed_seconds": 92.0,
        "benchmarks": [{"name": "choices", "parameters": {"separator": ""}}],
        "job_id": JOB_ID,
        "model": {"job_id": JOB_ID},
        "checkpoint_id": None,
        "step": 72,
        "status": "COMPLETED",
        "results": {"choices": {"metrics": measured, "n": 200, "seconds": 3.21}},
    }
    return {**found, **more}


def created(evaluation_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"message": "", "estimated_wait_seconds": None, "warnings": []}
    return {"evaluation_id": evaluation_id, "status": "PENDING", **fields}


def sent(server: ScriptedServer, number: int = -1) -> Any:
    return json.loads(server.seen[number][3])


def test_infer_sends_the_document_and_prints_the_id(server: ScriptedServer, file: str) -> None:
    server.script(success(CREATED, 201))

    answer = run("infer", file, "--project", "red")

    method, path, headers, body = server.seen[0]
    assert (method, path, json.loads(body)) == ("POST", "/v1/inference", DOCUMENT)
    assert (headers["X-Project"], bool(headers["Idempotency-Key"])) == ("red", True)
    assert (answer.exit_code, answer.stdout) == (0, "job-1\n")
    assert answer.stderr == "Warning: task.x: no effect\nFollow it with: trainyard watch job-1\n"


def test_infer_dry_run_shows_the_plan(server: ScriptedServer, file: str) -> None:
    server.script(success({"valid": True, "plan": PLAN, "warnings": ["no node is free"]}))

    answer = run("infer", file, "--dry-run")

    assert server.seen[0][1] == "/v1/inference?dry_run=true"
    assert ("n1    yes" in answer.stdout, answer.stderr) == (True, "Warning: no node is free\n")


def test_infer_watches_records_and_says_how_many_failed(
    server: ScriptedServer, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.client.job_views.LINE_SECONDS", 0.0)
    at_work = {"progress": 0.34, "eta_seconds": 60, "latest_metrics": {"records_per_second": 1310.4}}
    server.script(
        success(CREATED, 201),
        success(job("EVALUATING", current_step=512, **at_work)),
        success(job("EVALUATING", current_step=41_200, **at_work)),
        success(job("COMPLETED", current_step=120_000, progress=1.0)),
        success({"model_uri": "file:///out/labels"}),
        success({"failed_records": 1200, "output": {"path": "file:///out/labels"}}),
    )

    answer = run("infer", file, "--watch")

    assert answer.exit_code == 0
    assert "41,200 of 120,000 records  1,310/s  1:00 left" in answer.stdout
    assert answer.stdout.endswith(
        "job-1 COMPLETED after 1:32, 120,000 records\nOutput: file:///out/labels\n"
        "1,200 records have an error in place of a result; see column error of file:///out/labels\n"
    )


def test_infer_exits_with_3_when_the_job_failed(server: ScriptedServer, file: str) -> None:
    failed = job("FAILED", error_type="DATA_INVALID", error_message="1 of 10 records")
    server.script(
        success(CREATED, 201), success(failed), success({"failed_records": 0, "output": {"path": "/out/labels"}})
    )

    answer = run("infer", file, "--watch")

    assert answer.exit_code == 3
    assert "DATA_INVALID: 1 of 10 records" in answer.stdout


@pytest.mark.parametrize(
    ("written", "model"),
    [
        (JOB_ID, {"job_id": JOB_ID}),
        (f"{JOB_ID}@best", {"job_id": JOB_ID, "checkpoint": "best"}),
        (f"{JOB_ID}@ckpt-7", {"job_id": JOB_ID, "checkpoint": "ckpt-7"}),
        ("acme/base", {"model_uri": "acme/base"}),
        ("s3://models/base@2", {"model_uri": "s3://models/base@2"}),
    ],
)
def test_eval_run_measures_a_model(server: ScriptedServer, written: str, model: dict[str, str]) -> None:
    server.script(success(created("job-1"), 201))

    answer = run("eval", "run", written, "-b", "perplexity:s3://data/val.jsonl", "--seed", "7", "--name", "night")

    assert server.seen[0][:2] == ("POST", "/v1/evaluations")
    assert sent(server) == {
        "model": model,
        "benchmarks": [{"name": "perplexity", "dataset": "s3://data/val.jsonl"}],
        "seed": 7,
        "name": "night",
    }
    assert (answer.exit_code, answer.stdout) == (0, "job-1\n")


def test_eval_run_finds_files_beside_it(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("val.jsonl", "vowels.py", "base"):
        (tmp_path / name).touch()
    (tmp_path / "eval.yaml").write_text("benchmarks: [{name: loss, dataset: /srv/val.jsonl}]\nname: of-file\n")
    server.script(success(created("job-1"), 201))

    run(
        *(
            "eval",
            "run",
            "base",
            "--file",
            "eval.yaml",
            "-b",
            "preference:s3://a/b.jsonl",
            "-b",
            "custom:vowels.py:val.jsonl",
        ),
        *("-n", "50", "-p", "max_new_tokens=8", "-p", "answer=completion", "--resource", "gpu_count=2"),
    )

    assert sent(server) == {
        "name": "of-file",
        "model": {"model_uri": f"{tmp_path}/base"},
        "benchmarks": [
            {"name": "loss", "dataset": "/srv/val.jsonl"},
            {
                "name": "preference",
                "dataset": "s3://a/b.jsonl",
                "parameters": {"max_new_tokens": 8, "answer": "completion"},
                "num_samples": 50,
            },
            {
                "name": f"custom:{tmp_path}/vowels.py",
                "dataset": f"{tmp_path}/val.jsonl",
                "parameters": {"max_new_tokens": 8, "answer": "completion"},
                "num_samples": 50,
            },
        ],
        "resource_config": {"gpu_count": 2},
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([JOB_ID], "name what to measure"),
        ([f"{JOB_ID}@newest", "-b", "loss:a"], "write JOB@best"),
        ([JOB_ID, "-b", ":a"], "is no benchmark"),
        ([JOB_ID, "-b", "loss:a", "-p", "x"], "write KEY=VALUE"),
        (["acme/base", "-b", "loss:a", "--against", "base"], "name the other model"),
    ],
)
def test_eval_run_refuses_what_means_nothing(arguments: list[str], said: str, server: ScriptedServer) -> None:
    answer = run("eval", "run", *arguments)

    assert (answer.exit_code, said in answer.stderr, server.seen) == (2, True, [])


def test_eval_run_dry_run_shows_the_plan(server: ScriptedServer) -> None:
    server.script(success({"valid": True, "plan": PLAN, "warnings": []}))

    answer = run("eval", "run", JOB_ID, "-b", "loss:a", "--dry-run")

    assert server.seen[0][1] == "/v1/evaluations?dry_run=true"
    assert "n1    yes" in answer.stdout


def test_eval_run_compares_with_the_base_model(server: ScriptedServer) -> None:
    base = {"model_id": "/srv/base", "dtype": "float32", "revision": None}
    done = {"kind": "evaluation", "total_steps": 1, "current_step": 1}
    server.script(
        success(job("COMPLETED", training_config={"base_model": base}, data_config={"max_seq_length": 64})),
        success(created("job-1"), 201),
        success(evaluation()),
        success(created("job-2"), 201),
        success(job("COMPLETED", **done)),
        success({"model_uri": ""}),
        success(job("COMPLETED", **done)),
        success({"model_uri": ""}),
        success(COMPARISON),
    )

    answer = run("eval", "run", JOB_ID, "-b", "choices:s3://data/a.jsonl", "--against", "base", "--watch")

    assert sent(server, 3) == {
        "model": {"model_uri": "/srv/base", "dtype": "float32"},
        "benchmarks": [{"name": "choices", "dataset": "s3://data/a.jsonl", "parameters": {"separator": ""}}],
        "data_config": {"max_seq_length": 64},
    }
    assert sent(server) == {"ids": ["job-1", "job-2"], "baseline": "job-2"}
    assert answer.exit_code == 0
    assert "COMPLETED after 1:32, 1 benchmark\n" in answer.stdout
    row = answer.stdout.splitlines()[-1].split()
    assert row == ["choices", "accuracy", "0.615", "0.265", "+0.35", "[+0.27,", "+0.43]", "0.0001", "200", "71"]
    assert "Note: choices: the seeds differ" in answer.stderr


def test_eval_run_of_a_model_from_scratch_has_no_base(server: ScriptedServer) -> None:
    nothing = {"base_model": {"model_id": "none", "from_config": {"model_type": "llama"}}}
    server.script(success(job("COMPLETED", training_config=nothing)))

    answer = run("eval", "run", JOB_ID, "-b", "loss:a", "--against", "base")

    assert (answer.exit_code, "began with random weights" in answer.stderr) == (1, True)


def test_eval_run_watches_and_prints_the_results(server: ScriptedServer) -> None:
    done = job("COMPLETED", kind="evaluation", total_steps=1, current_step=1)
    server.script(success(created("job-1"), 201), success(done), success({"model_uri": ""}), success(evaluation()))

    answer = run("eval", "run", JOB_ID, "-b", "choices:a", "--watch")

    assert answer.exit_code == 0
    assert "choices    accuracy            0.615 ± 0.034  200      3.2" in answer.stdout
    assert "choices    accuracy_by_length  0.6            200      3.2" in answer.stdout


def test_eval_run_exits_with_3_when_an_evaluation_failed(server: ScriptedServer) -> None:
    server.script(success(created("job-1"), 201), success(job("FAILED", kind="evaluation", total_steps=1)))

    assert run("eval", "run", JOB_ID, "-b", "choices:a", "--watch").exit_code == 3


def test_eval_run_prints_both_ids_and_how_to_compare(server: ScriptedServer) -> None:
    server.script(success(created("job-1"), 201), success(evaluation()), success(created("job-2"), 201))

    answer = run("eval", "run", "acme/tuned", "-b", "choices:a", "--against", "acme/base")

    assert answer.stdout == "job-1\njob-2\n"
    assert answer.stderr == "Once they completed: trainyard eval compare job-2 job-1\n"


def test_eval_list_shows_a_line_for_each(server: ScriptedServer) -> None:
    server.script(success({"evaluations": [evaluation(checkpoint_id="ckpt-3")], "next_page_token": None}))

    answer = run("eval", "list", "--job", JOB_ID, "--status", "completed")

    assert f"status=COMPLETED&job_id={JOB_ID}" in server.seen[0][1]
    assert f"job-1  {JOB_ID} at ckpt-3  72    COMPLETED  choices accuracy 0.615" in answer.stdout


def test_eval_list_without_evaluations_and_as_json(server: ScriptedServer) -> None:
    server.script(success({"evaluations": [], "next_page_token": None}))

    assert run("eval", "list").stdout == "no evaluations\n"
    assert json.loads(run("eval", "list", "--json").stdout) == {"evaluations": []}


def test_eval_show_has_model_and_results(server: ScriptedServer) -> None:
    server.script(success(evaluation(results={}, status="EVALUATING", model={"model_uri": "/srv/base"}, job_id=None)))

    answer = run("eval", "show", "job-1")

    assert "/srv/base" in answer.stdout
    assert "no device is free" in answer.stdout
    assert answer.stdout.endswith("no results yet\n")
    assert json.loads(run("eval", "show", "job-1", "--json").stdout)["evaluation_id"] == "job-1"


def test_eval_compare_asks_for_the_baseline(server: ScriptedServer) -> None:
    server.script(success(COMPARISON))

    answer = run("eval", "compare", "job-1", "job-2", "--baseline", "job-2")

    assert sent(server) == {"ids": ["job-1", "job-2"], "baseline": "job-2"}
    assert "+0.35" in answer.stdout
    assert json.loads(run("eval", "compare", "job-1", "job-2", "--json").stdout) == COMPARISON
    assert sent(server) == {"ids": ["job-1", "job-2"]}


def test_eval_cancel_delete_and_refusals(server: ScriptedServer) -> None:
    server.script(success(evaluation(status="CANCELLED")))
    cancelled, deleted = run("eval", "cancel", "job-1", "--reason", "enough"), run("eval", "delete", "job-1")
    server.script(failure(409, {"code": "INVALID_STATE", "message": "it runs"}))

    refused = run("eval", "delete", "job-1")

    assert (server.seen[0][1], sent(server, 0)) == ("/v1/evaluations/job-1/cancel", {"reason": "enough"})
    assert (server.seen[1][:2], deleted.stdout) == (("DELETE", "/v1/evaluations/job-1"), "job-1 deleted\n")
    assert cancelled.stdout == "job-1 CANCELLED\n"
    assert (refused.exit_code, refused.stderr) == (1, "Error: INVALID_STATE: it runs\n")
