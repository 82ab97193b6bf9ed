"""submit, watch, logs and the verbs, against a small real HTTP server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.client import watch as watching
from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, drop, failure, stream, success
from tests.systems.servers import free_port

JOB_ID = "job-00000000-0000-7000-8000-000000000001"
JOB = {"job_id": JOB_ID, "name": "n", "attempt": 1, "node_names": ["local"], "total_steps": 10}
SUBMITTED = {
    "job_id": JOB_ID,
    "status": "PENDING",
    "message": "",
    "estimated_wait_seconds": None,
    "warnings": ["x: no effect"],
}
DOCUMENT = {"name": "n", "labels": {"a": "b"}}


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    return server


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


def job(status: str, **more: Any) -> dict[str, Any]:
    return {**JOB, "status": status, **more}


PLAN = {
    "queue": "default",
    "priority": 5,
    "queue_position": 1,
    "estimated_wait_seconds": None,
    "candidate_nodes": [{"name": "n1", "fits_now": False, "reason": "is drained"}],
}


def test_submit_dry_run_shows_plan_and_warnings_and_submits_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    returned = {"valid": True, "plan": PLAN, "warnings": ["no node is free"]}
    server.script(success(returned))
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT))

    for_people = run("submit", str(tmp_path / "job.json"), "--dry-run")
    for_programs = run("submit", str(tmp_path / "job.json"), "--dry-run", "--json")

    assert [path for _, path, *_ in server.seen] == ["/v1/jobs?dry_run=true"] * 2
    assert (for_people.exit_code, for_programs.exit_code) == (0, 0)
    assert "is drained" in for_people.stdout
    assert for_people.stderr == "Warning: no node is free\n"
    assert json.loads(for_programs.stdout) == returned


def test_checkpoint_asks_for_one(server: ScriptedServer) -> None:
    server.script(success(job("TRAINING"), 202))

    assert run("checkpoint", JOB_ID).stdout == "job-00000000-0000-7000-8000-000000000001 TRAINING\n"

    assert server.seen[0][:2] == ("POST", "/v1/jobs/job-00000000-0000-7000-8000-000000000001/checkpoint")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.json", json.dumps(DOCUMENT)),
        ("job.yaml", "name: n\nlabels: {a: b}\n"),
        ("job", "name: n\nlabels:\n  a: b"),
    ],
)
def test_submit_sends_json_and_yaml(server: ScriptedServer, tmp_path: Path, name: str, text: str) -> None:
    server.script(success(SUBMITTED, 201))
    (tmp_path / name).write_text(text)

    answer = run("submit", str(tmp_path / name))

    assert (answer.exit_code, answer.stdout) == (0, "job-00000000-0000-7000-8000-000000000001\n")
    assert answer.stderr.startswith("Warning: x: no effect\n")
    assert json.loads(server.seen[0][3]) == DOCUMENT


def test_submit_sends_the_tokens_of_the_environment(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script(success(SUBMITTED, 201))
    monkeypatch.setenv("TRAINYARD_SCAIDRIVE_TOKEN", "drive")
    monkeypatch.setenv("TRAINYARD_USER_TOKEN", "user")

    answer = run("submit", "-", input=json.dumps(DOCUMENT))

    headers = server.seen[0][2]
    assert (headers["X-ScaiDrive-Token"], headers["X-User-Token"], headers["X-ScaiAtlas-Token"]) == (
        "drive",
        "user",
        None,
    )
    assert answer.stdout == "job-00000000-0000-7000-8000-000000000001\n"


def test_submit_names_the_project_that_the_job_is_for(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(success(SUBMITTED, 201), success({"valid": True, "plan": PLAN, "warnings": []}))
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT))

    submitted = run("submit", str(tmp_path / "job.json"), "--project", "red")
    checked = run("submit", str(tmp_path / "job.json"), "--project", "red", "--dry-run")

    assert (submitted.exit_code, checked.exit_code) == (0, 0)
    assert [headers["X-Project"] for *_, headers, _ in server.seen] == ["red", "red"]


@pytest.mark.parametrize("name", ["项目", "a\nb", "Red"])
def test_what_is_no_name_of_a_project_is_a_usage_error(server: ScriptedServer, tmp_path: Path, name: str) -> None:
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT))

    answer = run("submit", str(tmp_path / "job.json"), "--project", name)

    assert (answer.exit_code, "not a project name" in answer.stderr) == (2, True)
    assert server.seen == []


def test_submit_reads_standard_input_and_prints_json(server: ScriptedServer) -> None:
    server.script(success(SUBMITTED, 201))

    answer = run("submit", "-", "--json", input=json.dumps(DOCUMENT))

    assert json.loads(answer.stdout) == SUBMITTED


def test_errors_of_a_command_that_prints_json_are_json(server: ScriptedServer) -> None:
    server.script(failure(409, {"code": "INVALID_STATE", "message": "it has ended"}))

    answer = run("cancel", JOB_ID, "--json")

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert json.loads(answer.stderr)["error"] == {
        "status": 409,
        "code": "INVALID_STATE",
        "message": "it has ended",
        "details": [],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a job document"),
        ("[1]", "not a mapping"),
        ("a: [", "not a job document"),
        ("at: 2026-01-01", "date"),
        ('{"a": NaN}', "not a job document"),
        ('{"a": {"b": 1, "b": 2}}', "'b' appears twice"),
        ("a: 1\nc: {b: 1, b: 2}\n", "'b' appears twice"),
    ],
)
def test_submit_says_what_is_wrong_with_a_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "job.json").write_text(text)

    answer = run("submit", str(tmp_path / "job.json"))

    assert answer.exit_code == 1
    assert said in answer.stderr


def test_a_refusal_names_the_fields_and_exits_with_1(server: ScriptedServer, tmp_path: Path) -> None:
    details = [{"field": "resource_config.gpu_count", "message": "must be at least 1"}]
    server.script(failure(422, {"code": "VALIDATION_ERROR", "message": "1 problem", "details": details}))
    (tmp_path / "job.json").write_text("{}")

    answer = run("submit", str(tmp_path / "job.json"))

    assert answer.exit_code == 1
    assert "resource_config.gpu_count: must be at least 1" in answer.stderr


def test_submit_and_watch_to_a_good_end(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(
        success(SUBMITTED, 201),
        success(job("QUEUED", attempt=0, pending_reason="needs 1 CPU slot")),
        success(job("TRAINING", progress=0.5, current_step=5, latest_metrics={"loss": 2.5}, eta_seconds=61)),
        success(job("COMPLETED", progress=1.0, current_step=10, elapsed_seconds=3.2)),
        success({"model_uri": "file:///somewhere"}),
    )
    (tmp_path / "job.json").write_text("{}")

    answer = run("submit", str(tmp_path / "job.json"), "--watch")

    assert answer.exit_code == 0
    assert "QUEUED  needs 1 CPU slot" in answer.stdout
    assert "TRAINING  attempt 1 on local" in answer.stdout
    assert answer.stdout.endswith(
        "job-00000000-0000-7000-8000-000000000001 COMPLETED after 0:03, 10 steps\n"
        "Model: trainyard download job-00000000-0000-7000-8000-000000000001\n"
    )


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "PREEMPTED"])
def test_watch_exits_with_3_unless_the_job_completed(server: ScriptedServer, status: str) -> None:
    server.script(success(job(status, error_type="DATA_INVALID", error_message="line 3 has no text")))

    answer = run("watch", JOB_ID)

    assert answer.exit_code == 3
    assert "DATA_INVALID: line 3 has no text" in answer.stdout


def test_watch_prints_the_job_as_a_line_of_json_each_time_it_changed(server: ScriptedServer) -> None:
    server.script(
        success(job("TRAINING", version=3, current_step=1)),
        success(job("TRAINING", version=3, current_step=1)),
        success(job("COMPLETED", version=5, current_step=10)),
    )

    answer = run("watch", JOB_ID, "--json")

    assert [json.loads(line)["status"] for line in answer.stdout.splitlines()] == ["TRAINING", "COMPLETED"]


def test_watch_continues_after_a_rate_limit(server: ScriptedServer) -> None:
    limited = failure(429, {"code": "RATE_LIMITED", "message": "too many requests", "retry_after": 1})
    server.script(success(job("TRAINING")), limited, success(job("COMPLETED")), success({}))
    began = time.monotonic()

    answer = run("watch", JOB_ID)

    assert answer.exit_code == 0
    assert "too many requests" in answer.stdout
    assert time.monotonic() - began >= 1


def test_watch_continues_when_the_server_was_away(server: ScriptedServer) -> None:
    server.script(success(job("TRAINING")), drop, drop, success(job("CANCELLED")))

    answer = run("watch", JOB_ID)

    assert answer.exit_code == 3
    assert answer.stdout.count("waiting for the server") == 1


@pytest.mark.parametrize("command", [("watch", JOB_ID), ("jobs", "list"), ("cancel", "sft")])
def test_command_fails_at_once_when_no_server_was_ever_there(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("trainyard._client.calls.time.sleep", slept.append)
    monkeypatch.setenv("TRAINYARD_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("TRAINYARD_API_KEY", "k")

    answer = run(*command)

    assert (answer.exit_code, slept) == (1, [])
    assert "no Trainyard server at" in answer.stderr


def test_an_unknown_job_exits_with_1(server: ScriptedServer) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": "no job job-00000000-0000-7000-8000-000000000001"}))

    answer = run("watch", JOB_ID)

    assert (answer.exit_code, answer.stderr) == (
        1,
        "Error: NOT_FOUND: no job job-00000000-0000-7000-8000-000000000001\n",
    )


def test_ctrl_c_leaves_the_job_running_and_says_so(server: ScriptedServer) -> None:
    server.script(success(job("TRAINING")))
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "watch", JOB_ID],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What was started in the background ignores it, and hands that on to its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 – one call, no lock
    )
    deadline = time.monotonic() + 10
    while len(server.seen) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)

    assert process.returncode == 1
    assert "job-00000000-0000-7000-8000-000000000001 continues to run" in errors
    assert "Traceback" not in errors
    assert {method for method, *_ in server.seen} == {"GET"}


def test_logs_prints_time_rank_and_line(server: ScriptedServer) -> None:
    line = {"id": "1:1", "attempt": 1, "n": 1, "at": "2026-11-20T11:22:33.444Z", "rank": 1, "line": "hello [1]"}
    server.script(success({"lines": [line]}))

    answer = run("logs", JOB_ID, "--tail", "5", "--rank", "1")

    assert (answer.exit_code, answer.stdout) == (0, "11:22:33 [1] hello [1]\n")
    assert server.seen[0][1] == "/v1/jobs/job-00000000-0000-7000-8000-000000000001/logs?tail=5&follow=false&rank=1"


def test_logs_follows_the_stream(server: ScriptedServer) -> None:
    events = "".join(f'id: 1:{n}\ndata: {{"n": {n}, "line": "line {n}", "rank": 0}}\n\n' for n in (1, 2))
    server.script(stream(events + "data: [DONE]\n\n"))

    answer = run("logs", JOB_ID, "-f", "--json")

    assert [json.loads(line)["n"] for line in answer.stdout.splitlines()] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "path", "body"),
    [
        (["cancel", JOB_ID, "--reason", "enough"], "cancel", {"reason": "enough"}),
        (["pause", JOB_ID, "--no-checkpoint"], "pause", {"save_checkpoint": False}),
        (["pause", JOB_ID, "--force"], "pause", {"save_checkpoint": True, "force": True}),
        (["resume", JOB_ID, "--checkpoint", "ckpt-1"], "resume", {"checkpoint_id": "ckpt-1"}),
        (["resume", JOB_ID, "--best"], "resume", {"checkpoint_id": "", "from_best": True}),
        (["retry", JOB_ID, "--from-start"], "retry", {"checkpoint_id": "", "from_start": True}),
        (
            [
                "retry",
                JOB_ID,
                "--resource",
                "gpu_count=1",
                "--resource",
                "gpu_fraction=0.5",
                "--resource",
                "gpu_type=4090,h100",
            ],
            "retry",
            {
                "checkpoint_id": "",
                "from_start": False,
                "modify_resources": True,
                "new_resource_config": {"gpu_count": 1, "gpu_fraction": 0.5, "gpu_type": ["4090", "h100"]},
            },
        ),
        (
            ["retry", JOB_ID, "--resource", "rollout.count=3", "--resource", "rollout.gpu_type=4090"],
            "retry",
            {
                "checkpoint_id": "",
                "from_start": False,
                "modify_resources": True,
                "new_tasks": [{"role": "rollout", "count": 3, "resource_config": {"gpu_type": "4090"}}],
            },
        ),
    ],
)
def test_verbs_pass_on_what_was_asked(
    server: ScriptedServer, arguments: list[str], path: str, body: dict[str, Any]
) -> None:
    server.script(success(job("TRAINING", requested="cancel")))

    answer = run(*arguments)

    assert (server.seen[0][1], json.loads(server.seen[0][3])) == (
        f"/v1/jobs/job-00000000-0000-7000-8000-000000000001/{path}",
        body,
    )
    assert answer.stdout == "job-00000000-0000-7000-8000-000000000001 TRAINING (cancel requested)\n"


def test_verbs_pass_on_what_the_server_says(server: ScriptedServer) -> None:
    server.script(failure(409, {"code": "INVALID_STATE", "message": "it cannot save"}))

    answer = run("pause", JOB_ID)

    assert (answer.exit_code, answer.stderr) == (1, "Error: INVALID_STATE: it cannot save\n")


@pytest.mark.parametrize(("status", "exit_code"), [("PAUSED", 0), ("TRAINING", 1), ("COMPLETED", 1)])
def test_pause_waits_until_the_control_request_is_done(server: ScriptedServer, status: str, exit_code: int) -> None:
    server.script(success(job("TRAINING", requested="pause")))
    server.script(success(job("CHECKPOINTING", requested="pause")))
    server.script(success(job(status)))

    answer = run("pause", JOB_ID, "--wait")

    assert (answer.exit_code, answer.stdout) == (exit_code, f"job-00000000-0000-7000-8000-000000000001 {status}\n")


def test_invalid_resource_is_a_usage_error(server: ScriptedServer) -> None:
    answer = run("retry", JOB_ID, "--resource", "gpu_count")

    assert (answer.exit_code, "KEY=VALUE" in answer.stderr) == (2, True)
    assert server.seen == []
