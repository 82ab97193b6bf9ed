"""`trainyard infer` and `trainyard eval`, against a small real HTTP server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.client import watch as watching
from app.cli.main import main
from tests.builders.evaluation_answers import COMPARISON, JOB_ID, PLAN, evaluation, job, sent
from tests.doubles.scripted_server import ScriptedServer, failure, success

FIRST, SECOND = (f"job-01900000-0000-7000-8000-00000000000{number}" for number in (1, 2))
DOCUMENT = {"name": "label", "model": {"job_id": JOB_ID}, "task": {"type": "generate"}}
CREATED = {
    "job_id": "job-1",
    "status": "PENDING",
    "message": "",
    "estimated_wait_seconds": None,
    "warnings": ["task.x: no effect"],
}


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    return server


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "batch.json").write_text(json.dumps(DOCUMENT))
    return str(tmp_path / "batch.json")


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


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

    assert server.seen[0][1] == "/v1/inference?dry_run=true&inspect=true"
    assert ("n1    yes" in answer.stdout, answer.stderr) == (True, "Warning: no node is free\n")


def test_infer_dry_run_shows_what_was_found_in_the_records(server: ScriptedServer, file: str) -> None:
    error = {"error_type": "DATA_INVALID", "message": "rows.jsonl line 1 has neither prompt, nor messages"}
    found = {"valid": False, "errors": [error], "warnings": [], "left_out": [], "sources": []}
    server.script(success({"valid": True, "plan": PLAN, "warnings": [], "data": found}))

    answer = run("infer", file, "--dry-run")

    assert (answer.exit_code, answer.stderr) == (1, f"Error: {error['message']}\n")
    assert "1 error." in answer.stdout


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
        success({"model_uri": "s3://out/labels"}),
        success({"failed_records": 1200, "output": {"path": "s3://out/labels"}}),
    )

    answer = run("infer", file, "--watch")

    assert answer.exit_code == 0
    assert "41,200 of 120,000 records  1,310/s  1:00 left" in answer.stdout
    assert answer.stdout.endswith(
        "job-1 COMPLETED after 1:32, 120,000 records\nOutput: s3://out/labels\n"
        "1,200 records have an error in place of a result; see column error of s3://out/labels\n"
    )


def test_infer_exits_with_3_when_the_job_failed(server: ScriptedServer, file: str) -> None:
    failed = job("FAILED", error_type="DATA_INVALID", error_message="1 of 10 records")
    server.script(
        success(CREATED, 201), success(failed), success({"failed_records": 0, "output": {"path": "/out/labels"}})
    )

    answer = run("infer", file, "--watch")

    assert answer.exit_code == 3
    assert "DATA_INVALID: 1 of 10 records" in answer.stdout


def test_eval_list_shows_a_line_for_each(server: ScriptedServer) -> None:
    server.script(success({"evaluations": [evaluation(checkpoint_id="ckpt-3")], "next_page_token": None}))

    answer = run("eval", "list", "--job", JOB_ID, "--status", "completed")

    assert f"status=COMPLETED&job_id={JOB_ID}" in server.seen[0][1]
    assert f"job-1  n     {JOB_ID} at ckpt-3  72    COMPLETED  choices accuracy 0.615" in answer.stdout


def test_eval_list_without_evaluations_and_as_json(server: ScriptedServer) -> None:
    server.script(success({"evaluations": [], "next_page_token": None}))

    assert run("eval", "list").stdout == "no evaluations\n"
    assert json.loads(run("eval", "list", "--json").stdout) == {"evaluations": []}


def test_eval_show_has_model_and_results(server: ScriptedServer) -> None:
    server.script(success(evaluation(results={}, status="EVALUATING", model={"model_uri": "/srv/base"}, job_id=None)))

    answer = run("eval", "show", FIRST)

    assert "/srv/base" in answer.stdout
    assert "no device is free" in answer.stdout
    assert answer.stdout.endswith("no results yet\n")
    assert json.loads(run("eval", "show", FIRST, "--json").stdout)["evaluation_id"] == "job-1"


def test_eval_show_says_what_was_required(server: ScriptedServer) -> None:
    of = {"metric": "choices/accuracy", "min": 0.5, "max": None, "value": 0.615, "passed": False}
    verdict = {**of, "baseline": "job-9", "margin": 0.01, "baseline_value": 0.65}
    server.script(success(evaluation(passed=False, verdicts=[verdict])))

    lines = [" ".join(line.split()) for line in run("eval", "show", FIRST).stdout.splitlines()]

    assert "passed no" in lines
    assert lines[-1] == "choices/accuracy >= 0.5, at most 0.01 worse than 0.65 of job-9 0.615 no"


def test_eval_compare_asks_for_the_baseline(server: ScriptedServer) -> None:
    server.script(success(COMPARISON))

    answer = run("eval", "compare", FIRST, SECOND, "--baseline", SECOND)

    assert sent(server) == {"ids": [FIRST, SECOND], "baseline": SECOND}
    assert "+0.35" in answer.stdout
    assert json.loads(run("eval", "compare", FIRST, SECOND, "--json").stdout) == COMPARISON
    assert sent(server) == {"ids": [FIRST, SECOND]}


def test_eval_cancel_delete_and_refusals(server: ScriptedServer) -> None:
    server.script(success(evaluation(status="CANCELLED")))
    cancelled, deleted = (run("eval", "cancel", FIRST, "--reason", "enough"), run("eval", "delete", FIRST))
    server.script(failure(409, {"code": "INVALID_STATE", "message": "it runs"}))

    refused = run("eval", "delete", FIRST)

    assert (server.seen[0][1], sent(server, 0)) == (f"/v1/evaluations/{FIRST}/cancel", {"reason": "enough"})
    assert (server.seen[1][:2], deleted.stdout) == (("DELETE", f"/v1/evaluations/{FIRST}"), f"{FIRST} deleted\n")
    assert cancelled.stdout == f"{FIRST} CANCELLED\n"
    assert (refused.exit_code, refused.stderr) == (1, "Error: INVALID_STATE: it runs\n")
