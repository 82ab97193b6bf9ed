"""`trainyard batches`, against a small real HTTP server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.main import main
from tests.builders.batches import lines_of, request_line
from tests.doubles.scripted_server import Answer, ScriptedServer, drop, running
from trainyard._client import calls as _calls
from trainyard.client import Client

BATCH_ID = "batch-01900000-0000-7000-8000-000000000001"
BATCH = {
    "id": BATCH_ID,
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "input_file_id": "file-1",
    "completion_window": "24h",
    "status": "validating",
    "output_file_id": None,
    "error_file_id": None,
    "errors": None,
    "created_at": 1_700_000_000,
    "expires_at": 1_700_086_400,
    "request_counts": {"total": 3, "completed": 2, "failed": 1},
    "model": "tiny",
    "usage": {"input_tokens": 10, "output_tokens": 5},
    "metadata": None,
    "trainyard": {"pending_reason": None, "jobs": {"tiny": "job-1"}},
}
ENDED = BATCH | {"status": "completed", "output_file_id": "file-2", "error_file_id": "file-3"}
PROBLEM = {"code": "validation_error", "message": "must be at most 2", "param": "body.temperature", "line": 7}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(_calls, "FIRST_PAUSE_SECONDS", 0.01)
    with running() as server:
        monkeypatch.setenv("TRAINYARD_URL", server.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", "the key")
        yield server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["batches", *arguments])


def plain(body: Any, status: int = 200) -> Answer:
    return lambda handler: handler.reply(status, json.dumps(body).encode())


def test_create_uploads_a_file_and_says_what_is_asked(server: ScriptedServer, tmp_path: Path) -> None:
    data, parts = tmp_path / "requests.jsonl", tmp_path / "parts.yaml"
    data.write_bytes(lines_of([request_line("a")]))
    parts.write_text("resource_config: {gpu_count: 2}\n")
    server.script(plain({"id": "file-1"}), drop, plain(BATCH))

    answer = run(
        "create", str(data), "--window", "48h", "--metadata", "team=red", "--expires-hours", "2", "--parts", str(parts)
    )

    assert (answer.exit_code, answer.stdout) == (0, f"{BATCH_ID}\n")
    assert b'name="purpose"\r\n\r\nbatch' in server.seen[0][3]
    assert [each[:2] for each in server.seen[1:]] == [("POST", "/v1/batches")] * 2
    assert server.seen[1][2]["Idempotency-Key"] == server.seen[2][2]["Idempotency-Key"]
    assert json.loads(server.seen[2][3]) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "48h",
        "metadata": {"team": "red"},
        "output_expires_after": {"anchor": "created_at", "seconds": 7200},
        "trainyard": {"resource_config": {"gpu_count": 2}},
    }


def test_the_client_leaves_out_what_is_not_said_and_sends_a_time_of_zero(server: ScriptedServer) -> None:
    server.script(plain(BATCH))
    batches = Client(server.url, "the key").batches

    batches.create("file-1")
    batches.create("file-1", output_expires_seconds=0)

    sent = [json.loads(body).get("output_expires_after") for _, _, _, body in server.seen]
    assert sent == [None, {"anchor": "created_at", "seconds": 0}]  # which the server refuses


def test_create_takes_an_uploaded_file_and_waits(server: ScriptedServer) -> None:
    server.script(plain(BATCH), plain(ENDED))

    answer = run("create", "file-1", "--endpoint", "/v1/embeddings", "--wait")

    assert answer.exit_code == 0
    assert answer.stdout.startswith(f"{BATCH_ID}\n")
    assert "10 read, 5 written" in answer.stdout
    assert json.loads(server.seen[0][3])["endpoint"] == "/v1/embeddings"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("no-such-file",), "no file no-such-file"), (("file-1", "--metadata", "team"), "NAME=VALUE")],
)
def test_create_refuses_what_it_can_not_send(server: ScriptedServer, arguments: tuple[str, ...], said: str) -> None:
    answer = run("create", *arguments)

    assert answer.exit_code != 0
    assert said in answer.stderr
    assert server.seen == []


def test_wait_ends_with_a_code_and_says_why_a_batch_has_failed(server: ScriptedServer) -> None:
    server.script(plain(BATCH | {"status": "failed", "errors": {"object": "list", "data": [PROBLEM]}}))

    answer = run("show", BATCH_ID, "--wait")

    assert answer.exit_code == 3
    assert "line 7: body.temperature: must be at most 2" in answer.stdout


def test_list_shows_page_after_page(server: ScriptedServer) -> None:
    pages = [
        {"object": "list", "data": [BATCH], "has_more": True, "first_id": BATCH_ID, "last_id": BATCH_ID},
        {"object": "list", "data": [BATCH | {"id": "batch-2"}], "has_more": False, "last_id": "batch-2"},
    ]
    server.script(*map(plain, pages))

    answer = run("list")

    assert [line.split()[0] for line in answer.stdout.splitlines()] == ["id", "00000001", "batch-2"]
    assert [path for _, path, *_ in server.seen] == ["/v1/batches?limit=100", f"/v1/batches?limit=100&after={BATCH_ID}"]


def test_cancel_says_the_state(server: ScriptedServer) -> None:
    server.script(plain(BATCH | {"status": "cancelling"}))

    assert run("cancel", BATCH_ID).stdout == f"{BATCH_ID} cancelling\n"
    assert server.seen[0][:2] == ("POST", f"/v1/batches/{BATCH_ID}/cancel")


def test_download_saves_both_files(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(
        plain(ENDED),
        plain(ENDED),
        lambda handler: handler.reply(200, b"answers\n"),
        lambda handler: handler.reply(200, b"errors\n"),
    )

    answer = run("download", BATCH_ID, "--out", str(tmp_path / "answers"))

    assert answer.stdout.splitlines() == [str(tmp_path / "answers" / f"{name}.jsonl") for name in ("output", "errors")]
    assert (tmp_path / "answers" / "errors.jsonl").read_bytes() == b"errors\n"


def test_download_of_a_batch_without_answers_is_refused(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(plain(BATCH), plain(BATCH))

    answer = run("download", BATCH_ID, "--out", str(tmp_path / "answers"))

    assert answer.exit_code == 1
    assert f"{BATCH_ID} is validating and has no answers" in answer.stderr
    assert not (tmp_path / "answers").exists()


def test_answers_are_read_line_by_line(server: ScriptedServer) -> None:
    lines = [{"custom_id": "a"}, {"custom_id": "b"}, {"custom_id": "c"}]
    server.script(
        plain(ENDED),
        lambda handler: handler.reply(200, lines_of(lines[:2])),
        lambda handler: handler.reply(200, lines_of([lines[2]]).rstrip()),
    )

    assert list(Client(server.url, "the key").batches.answers(BATCH_ID)) == lines
