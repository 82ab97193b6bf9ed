"""Which server and key the client commands use."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import connection
from app.cli.connection import address
from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, failure, running, success
from trainyard.client import Client

JOB_ID = "job-00000000-0000-7000-8000-000000000001"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def data_directory(server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "url").write_text(server.url + "\n")
    (tmp_path / "admin.key").write_text("from-the-file\n")
    for name in ("TRAINYARD_URL", "TRAINYARD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path))


def test_url_and_key_come_from_the_data_directory(server: ScriptedServer) -> None:
    server.script(success({"job_id": JOB_ID, "name": "n", "status": "CANCELLED"}))

    CliRunner().invoke(main, ["cancel", JOB_ID])

    assert server.seen[0][2]["Authorization"] == "Bearer from-the-file"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://trainyard.example.com", ""),
        ("http://10.0.0.7:8000", ""),
        ("http://127.0.0.1:9000", "from-the-file"),
        ("http://localhost:9000/", "from-the-file"),
    ],
)
def test_written_key_is_sent_to_this_machine_alone(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_URL", url)

    assert address() == (url.rstrip("/"), key)


def test_written_key_is_sent_to_the_written_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "url").write_text("http://192.0.2.9:8000\n")
    monkeypatch.setenv("TRAINYARD_URL", "http://192.0.2.9:8000/")

    assert address() == ("http://192.0.2.9:8000", "from-the-file")


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/"])
def test_url_for_clients_of_openai_is_taken(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setenv("TRAINYARD_URL", server.url + end)
    server.script(success({"job_id": JOB_ID, "name": "n", "status": "CANCELLED"}))

    CliRunner().invoke(main, ["cancel", JOB_ID])

    assert server.seen[0][1] == f"/v1/jobs/{JOB_ID}/cancel"
    assert Client(server.url + end, "key").url == server.url


def test_doctor_of_a_machine_that_only_uses_a_server_checks_that(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_URL", server.url)
    monkeypatch.setenv("TRAINYARD_API_KEY", "mine")
    server.script(success({}), failure(401, {"code": "AUTHN_FAILED", "message": "no such key"}))

    good, bad = (CliRunner().invoke(main, ["doctor"]) for _ in range(2))

    assert (good.exit_code, bad.exit_code) == (0, 1), good.output
    assert f"{server.url} answers and takes the key" in good.stdout
    assert "run doctor on the machine of the server of TRAINYARD_URL" in good.stdout
    assert "trainyard db init" not in good.stdout + bad.stdout
    assert "AUTHN_FAILED" in bad.stdout


def test_without_a_key_the_error_names_the_variable(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "admin.key").unlink()
    monkeypatch.setattr(connection, "FIRST_KEY_SECONDS", 0.0)
    server.script(failure(401, {"code": "AUTH_TOKEN_MISSING", "message": "send your API key"}))

    answer = CliRunner().invoke(main, ["cancel", JOB_ID])

    assert answer.exit_code == 1
    assert "set TRAINYARD_API_KEY" in answer.stderr


def test_key_of_a_platform_that_starts_for_the_first_time_is_waited_for(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "admin.key").unlink()

    def write(_: float) -> None:
        (tmp_path / "admin.key").write_text("the-first\n")

    monkeypatch.setattr(time, "sleep", write)

    assert address() == (server.url, "the-first")


def test_no_key_is_waited_for_where_no_platform_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "admin.key").unlink()
    (tmp_path / "run" / "url").unlink()
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))

    assert address() == ("http://127.0.0.1:8000", "")
