"""Mistakes on the command line: what was meant, where URL and key come from, and each error once."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli.main import main
from app.http.errors import BadShape
from tests.builders.mistakes import says
from tests.builders.sweep_answers import SWEEP_ID
from tests.doubles.scripted_server import ScriptedServer, failure, running
from tests.systems.servers import free_port


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sumbit", "job.json"], "No such command 'sumbit' (did you mean submit?); see main -h"),
        (["Logs"], "No such command 'Logs' (did you mean logs?); …"),
        (["train"], "No such command 'train' (did you mean submit?); …"),
        (["frobnicate"], "No such command 'frobnicate'; …"),
        (["sweep", "wacth"], "No such command 'wacth'…'watch'?"),
        (
            ["jobs", "list", "--status", "FINISHED"],
            "Invalid value for '--status': 'FINISHED' is not one of …(did you mean COMPLETED?).",
        ),
        (["sweep", "list", "--status", "runing"], "…'runing' is not one of …(did you mean RUNNING?)."),
        (["sweep", "trials", SWEEP_ID, "--state", "Stoped"], "…'Stoped' is not one of …(did you mean STOPPED?)."),
        (["recipes", "list", "--method", "QLRA"], "…'QLRA' is not one of …(did you mean QLORA?)."),
        (["recipes", "list", "--family", "lama"], "…'lama' is not one of …(did you mean llama?)."),
        (["keys", "create", "--role", "usr"], "…'usr' is not one of …(did you mean user?)."),
        (["keys", "create", "--role", "xyz"], "…'xyz' is not one of 'inference', …, 'super_admin'."),
        (["submit", "--dryrun", "pyproject.toml"], "No such option '--dryrun'. Did you mean '--dry-run'?"),
        (["submit", "no-such-file.json"], "…'no-such-file.json' does not exist."),
        (["submit"], "Missing argument 'FILE'."),
    ],
    ids=str,
)
def test_mistake_in_a_command_line_is_told_what_was_meant(words: list[str], message: str) -> None:
    done = run(words)

    assert done.exit_code == 2
    assert says(done.stderr.strip().rpartition("Error: ")[2], message), done.stderr


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TRAINYARD_URL": "localhost:8000"}, "TRAINYARD_URL: 'localhost:8000' is no http:// or https:// URL …"),
        (
            {"TRAINYARD_URL": "http://127.0.0.1:{port}"},
            "no Trainyard server at http://127.0.0.1:{port} (TRAINYARD_URL)…; start one with `trainyard up`, or …",
        ),
        ({}, "no Trainyard server at http://127.0.0.1:8000 (the default)…`trainyard up`…TRAINYARD_URL…"),
    ],
    ids=str,
)
def test_server_that_is_away_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    port = str(free_port())
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path))
    for name in ("TRAINYARD_URL", "TRAINYARD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("{port}", port))

    done = run(["watch", "job-1"])

    assert done.exit_code == 1
    assert says(done.stderr.strip(), f"Error: {message.replace('{port}', port)}"), done.stderr


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "no API key for {url}: set TRAINYARD_API_KEY, or start `trainyard up`, …"),
        (
            "old",
            "AUTH_TOKEN_INVALID: no such key; the key is that of TRAINYARD_API_KEY, and the server {url} that of …",
        ),
    ],
    ids=["no key", "wrong key"],
)
def test_key_that_is_missing_or_refused_is_told_where_keys_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str, message: str
) -> None:
    with running() as server:
        point_at(server, monkeypatch, tmp_path, key=key)
        server.script(failure(401, {"code": "AUTH_TOKEN_INVALID", "message": "no such key"}))

        done = run(["cancel", "job-1"])

    assert done.exit_code == 1
    assert says(done.stderr.strip(), f"Error: {message.replace('{url}', server.url)}"), done.stderr


@pytest.mark.parametrize("count", [1, 3])
def test_error_of_the_server_is_printed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int) -> None:
    details = [(f"data_config.field_{number}", f"{number} must be above 9") for number in range(count)]
    with running() as server:
        point_at(server, monkeypatch, tmp_path, key="k")
        listed = [{"field": field, "message": message} for field, message in details]
        error = {"code": "VALIDATION_ERROR", "message": str(BadShape(details)), "details": listed}
        server.script(failure(422, error))
        file = tmp_path / "job.json"
        file.write_text("{}")

        done = run(["submit", str(file)])

    assert done.exit_code == 1
    for field, message in details:
        assert done.stderr.count(f"{field}: {message}") == 1, done.stderr
        assert done.stderr.count(message) == 1, done.stderr


def point_at(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, data_dir: Path, *, key: str) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(data_dir))
    monkeypatch.setenv("TRAINYARD_URL", server.url)
    monkeypatch.setenv("TRAINYARD_API_KEY", key)


def run(words: list[str]) -> Result:
    return CliRunner().invoke(main, words)
