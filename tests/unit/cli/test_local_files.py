"""Files on the user's machine that a document names as if the server had them: what the commands say."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, failure, success

JOB_ID = "job-00000000-0000-7000-8000-000000000001"
SUBMITTED: dict[str, Any] = {
    "job_id": JOB_ID,
    "status": "PENDING",
    "message": "",
    "estimated_wait_seconds": None,
    "warnings": [],
}
DATA_HINT = "Hint: mine.jsonl lies on this machine; upload it with `trainyard data push mine.jsonl`"
SCRIPT_HINT = "Hint: train.py lies on this machine; submit with `--code .`"
PLAN = {"queue": "default", "priority": 5, "queue_position": 1, "candidate_nodes": []}


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedServer:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "mine.jsonl").write_text("")
    return server


def submit(document: dict[str, Any], *arguments: str) -> Result:
    Path("job.json").write_text(json.dumps(document))
    return CliRunner().invoke(main, ["submit", "job.json", *arguments])


def document(*, script: str = "train.py", data: str = "mine.jsonl") -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_script_path": script}
    return {"name": "n", "training_config": {"framework": framework}, "data_config": {"sources": [{"path": data}]}}


def test_submission_to_another_machine_tells_how_to_send_them(server: ScriptedServer) -> None:
    server.script(success(SUBMITTED, 201))

    here, elsewhere = submit(document()), submit(document(script="/srv/train.py", data="/srv/mine.jsonl"))

    assert (here.exit_code, here.stdout) == (0, f"{JOB_ID}\n")
    assert SCRIPT_HINT in here.stderr
    assert DATA_HINT in here.stderr
    assert "Hint" not in elsewhere.stderr


def test_refusal_tells_it_of_what_it_names(server: ScriptedServer) -> None:
    server.script(failure(400, {"code": "X", "message": "mine.jsonl lies outside every directory that jobs may read"}))

    refused, as_json = submit(document()), submit(document(), "--json")

    assert DATA_HINT in refused.stderr
    assert SCRIPT_HINT not in refused.stderr
    assert json.loads(as_json.stderr)["error"]["code"] == "X"


def test_dry_run_fails_for_what_admission_would_refuse(server: ScriptedServer) -> None:
    missing = "admission would fail it with INVALID_CONFIG: custom script train.py does not exist; put it there"
    report = {"valid": True, "errors": [], "warnings": [], "left_out": [], "sources": []}
    server.script(success({"valid": True, "plan": PLAN, "warnings": [missing]}), success(report))

    refused = submit(document(), "--dry-run")

    assert refused.exit_code == 1
    assert SCRIPT_HINT in refused.stderr
    assert DATA_HINT not in refused.stderr


def test_watch_tells_it_of_a_job_that_failed_for_it(server: ScriptedServer) -> None:
    message = "data source mine.jsonl does not exist; put it there, or name another"
    failed = {"job_id": JOB_ID, "name": "n", "status": "FAILED", "error_type": "DATA_ERROR", "error_message": message}
    server.script(success({**failed, **document()}))

    watched = CliRunner().invoke(main, ["watch", JOB_ID])

    assert watched.exit_code == 3
    assert DATA_HINT in watched.stdout


def test_document_is_checked_before_its_code_is_uploaded(server: ScriptedServer) -> None:
    nothing = json.dumps({"object": "list", "data": [], "has_more": False}).encode()
    server.script(
        lambda handler: handler.reply(200, nothing),
        failure(422, {"code": "VALIDATION_ERROR", "message": "resource_config: is required"}),
    )

    refused = submit(document(), "--code", ".")

    assert refused.exit_code == 1
    assert "resource_config: is required" in refused.stderr
    asked = [(method, path.partition("?")[0]) for method, path, *_ in server.seen]
    assert asked == [("GET", "/v1/files"), ("POST", "/v1/jobs")]
    assert server.seen[1][1].endswith("dry_run=true")
    assert "custom_script_path" not in json.loads(server.seen[1][3])["training_config"]["framework"]
