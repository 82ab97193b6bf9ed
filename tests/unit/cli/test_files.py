"""`trainyard files` and `trainyard client-config`, against a small real HTTP server."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from werkzeug.test import EnvironBuilder

from app.cli.main import main
from tests.doubles.scripted_server import Answer, ScriptedServer, drop, running
from trainyard._client import calls as _calls
from trainyard._client import files as _files

FILE = {
    "id": "file-1",
    "object": "file",
    "bytes": 12,
    "created_at": 1_700_000_000,
    "expires_at": None,
    "filename": "a b.jsonl",
    "purpose": "fine-tune",
    "status": "uploaded",
    "status_details": None,
}
CONTENT = b'{"text": 1}\n' * 10


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(_calls, "FIRST_PAUSE_SECONDS", 0.01)
    with running() as server:
        monkeypatch.setenv("TRAINYARD_URL", server.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", "the key")
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / 'a "b.jsonl'
    path.write_bytes(CONTENT)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def plain(body: Any, status: int = 200) -> Answer:
    return lambda handler: handler.reply(status, json.dumps(body).encode())


def form(server: ScriptedServer, number: int) -> tuple[dict[str, str], dict[str, tuple[str | None, bytes]]]:
    """The fields and files (name, content) of a request that the server has seen."""
    _, _, headers, body = server.seen[number]
    assert int(headers["Content-Length"]) == len(body)
    with EnvironBuilder(method="POST", data=body, content_type=headers["Content-Type"]).get_request() as request:
        return request.form.to_dict(), {name: (file.filename, file.read()) for name, file in request.files.items()}


def test_put_sends_the_file_as_a_form_and_prints_its_id(server: ScriptedServer, data: Path) -> None:
    server.script(drop, plain(FILE), plain(FILE | {"status": "processed"}))

    answer = run("files", "put", str(data), "--expires-hours", "2", "--wait")

    assert (answer.exit_code, answer.stdout) == (0, "file-1\n")
    assert [each[:2] for each in server.seen] == [
        ("POST", "/v1/files"),
        ("POST", "/v1/files"),
        ("GET", "/v1/files/file-1"),
    ]
    assert server.seen[0][2]["Idempotency-Key"] == server.seen[1][2]["Idempotency-Key"]
    fields, files = form(server, 1)
    assert fields == {"purpose": "fine-tune", "expires_after[anchor]": "created_at", "expires_after[seconds]": "7200"}
    assert files == {"file": ('a "b.jsonl', CONTENT)}


def test_put_prints_the_errors_of_the_content(server: ScriptedServer, data: Path) -> None:
    server.script(plain(FILE), plain(FILE | {"status": "error", "status_details": "line 3: not JSON"}))

    answer = run("files", "put", str(data), "--wait", "--json")

    assert (answer.exit_code, answer.stderr) == (1, "Error: line 3: not JSON\n")
    assert json.loads(answer.stdout)["status"] == "error"


def test_put_sends_a_large_file_in_parts(server: ScriptedServer, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "PART_BYTES", 50)
    parts = [plain({"id": f"part-{number}"}) for number in range(3)]
    server.script(plain({"id": "upload-1"}), *parts, plain({"id": "upload-1", "file": FILE}))

    answer = run("files", "put", str(data), "--purpose", "batch")

    assert answer.stdout == "file-1\n"
    assert json.loads(server.seen[0][3]) == {
        "filename": data.name,
        "purpose": "batch",
        "bytes": 120,
        "mime_type": "application/jsonl",
    }
    sent = [form(server, number)[1]["data"][1] for number in (1, 2, 3)]
    assert ([len(part) for part in sent], b"".join(sent)) == ([50, 50, 20], CONTENT)
    assert server.seen[4][1] == "/v1/uploads/upload-1/complete"
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    assert json.loads(server.seen[4][3]) == {"part_ids": ["part-0", "part-1", "part-2"], "md5": md5}


def test_refused_part_cancels_the_upload(server: ScriptedServer, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "PART_BYTES", 50)
    refusal = {"error": {"message": "quota", "type": "insufficient_quota", "param": None, "code": None}}
    server.script(plain({"id": "upload-1"}), plain(refusal, 403), plain({}))

    answer = run("files", "put", str(data))

    assert (answer.exit_code, answer.stderr) == (1, "Error: insufficient_quota: quota\n")
    assert server.seen[-1][:2] == ("POST", "/v1/uploads/upload-1/cancel")


def test_list_shows_page_after_page(server: ScriptedServer) -> None:
    pages = [
        {"object": "list", "data": [FILE], "has_more": True, "first_id": "file-1", "last_id": "file-1"},
        {"object": "list", "data": [FILE | {"id": "file-2"}], "has_more": False, "last_id": "file-2"},
    ]
    server.script(*map(plain, pages))

    answer = run("files", "list", "--purpose", "fine-tune", "--project", "red")

    assert [line.split()[0] for line in answer.stdout.splitlines()] == ["id", "file-1", "file-2"]
    assert "2023-11-14 22:13:20" in answer.stdout
    assert [path for _, path, *_ in server.seen] == [
        "/v1/files?purpose=fine-tune&limit=1000",
        "/v1/files?purpose=fine-tune&limit=1000&after=file-1",
    ]
    assert server.seen[0][2]["X-Project"] == "red"


def test_get_saves_the_content_under_its_name_and_replaces_nothing(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.script(plain(FILE | {"filename": "../up/x.jsonl"}), lambda handler: handler.reply(200, CONTENT))

    saved = run("files", "get", "file-1")
    again = run("files", "get", "file-1", "--out", "x.jsonl")

    assert (saved.exit_code, saved.stdout) == (0, "x.jsonl\n")
    assert (tmp_path / "x.jsonl").read_bytes() == CONTENT
    assert [path for _, path, *_ in server.seen[:2]] == ["/v1/files/file-1", "/v1/files/file-1/content"]
    assert again.exit_code == 1


def test_get_writes_the_content_to_standard_output(server: ScriptedServer) -> None:
    server.script(lambda handler: handler.reply(200, CONTENT))

    assert run("files", "get", "upload://file-1", "--out", "-").stdout_bytes == CONTENT
    assert server.seen[0][1] == "/v1/files/file-1/content"


def test_get_to_standard_output_fails_where_the_content_breaks_off(server: ScriptedServer) -> None:
    length = {"Content-Length": str(len(CONTENT))}
    server.script(lambda handler: handler.reply(200, CONTENT[:30], "application/jsonl", **length), drop)

    result = run("files", "get", "file-1", "--out", "-")

    assert result.exit_code != 0
    assert f"broke after 30 of {len(CONTENT)} bytes" in result.stderr


def test_rm_deletes_and_says_why_not(server: ScriptedServer) -> None:
    refusal = {"error": {"message": "job-1 needs it", "type": "invalid_request_error", "code": "conflict"}}
    server.script(plain({"id": "file-1", "deleted": True}), plain(refusal, 409))

    answer = run("files", "rm", "upload://file-1", "file-2")

    assert [path for _, path, *_ in server.seen] == ["/v1/files/file-1", "/v1/files/file-2"]
    assert (answer.exit_code, answer.stdout) == (1, "file-1 deleted\n")
    assert answer.stderr == "Error: conflict: job-1 needs it\n"


def test_client_config_prints_the_variables_of_openai(server: ScriptedServer) -> None:
    lines = run("client-config", "openai", "--project", "red").stdout.splitlines()

    assert [shlex.split(line) for line in lines] == [
        ["export", f"OPENAI_BASE_URL={server.url}/v1"],
        ["export", "OPENAI_API_KEY=the key"],
        ["export", "OPENAI_PROJECT_ID=red"],
    ]
