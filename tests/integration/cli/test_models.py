"""`trainyard models`, on a real database."""

from pathlib import Path

import pytest

from tests.systems.commands import run, run_json


def test_base_model_is_named_listed_and_removed(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TRAINYARD_DATABASE_URL", sqlite_url)
    assert "models add NAME LOCATION" in run("models", "list").stdout

    assert run("models", "add", "tiny", "/srv/models/tiny").stdout == "tiny\n"

    again = run("models", "add", "tiny", "/srv/models/tiny")
    unknown = run("models", "add", "small", "/srv/models/small", "--project", "red")
    assert (again.exit_code, "already" in again.stderr) == (1, True)
    assert (unknown.exit_code, "no project red" in unknown.stderr) == (1, True)
    assert run_json("models", "rm", "tiny") == {"name": "tiny", "removed": True}
    (shown,) = run_json("models", "list")["models"]
    assert (shown["location"], shown["project"], shown["removed_at"] is None) == ("/srv/models/tiny", None, False)
    assert run("models", "rm", "tiny").exit_code == 1
