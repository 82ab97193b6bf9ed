"""Where an API server's processes count together."""

import sys

from app.cli.local.command_lines import api_command
from app.server.gunicorn_hooks import _reset_counters
from config.metrics_directory import VARIABLE, inherited_multiprocess_directory, multiprocess_directory
from config.settings import load_settings


def test_servers_that_share_a_data_directory_count_separately(tmp_path):
    first, second = (
        load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_API_PORT": port}) for port in ("8000", "8001")
    )

    assert multiprocess_directory(first) != multiprocess_directory(second)
    assert multiprocess_directory(first).parent == tmp_path / "run" / "measurements"


def test_only_the_server_gets_the_directory(tmp_path):
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)})

    command = api_command(settings, bind="127.0.0.1:8000")

    assert command[:4] == [sys.executable, "-m", "gunicorn", "app.factory:from_environment()"]  # whole: see 0126
    assert command[command.index("--env") + 1] == f"{VARIABLE}={multiprocess_directory(settings)}"
    assert inherited_multiprocess_directory({VARIABLE: "/srv/counts"}) is not None
    assert inherited_multiprocess_directory({}) is None


def test_a_start_discards_the_counts_of_the_previous_one(tmp_path):
    directory = tmp_path / "measurements" / "box-8000"
    environment = {VARIABLE: str(directory)}
    _reset_counters(environment)
    (directory / "counter_12.db").write_bytes(b"old")
    (directory / "notes.txt").write_text("not ours")

    _reset_counters(environment)

    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_server_without_a_metrics_directory_discards_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    _reset_counters({})

    assert list(tmp_path.iterdir()) == []
