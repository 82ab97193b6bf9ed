"""`trainyard models`, on a real database."""

import pytest

from tests.systems.commands import run_local, run_local_json


@pytest.mark.usefixtures("db")
def test_base_model_is_named_listed_and_removed() -> None:
    assert "models add NAME LOCATION" in run_local("models", "list").stdout

    assert run_local("models", "add", "tiny", "/srv/models/tiny").stdout == "tiny\n"

    again = run_local("models", "add", "tiny", "/srv/models/tiny")
    unknown = run_local("models", "add", "small", "/srv/models/small", "--project", "red")
    assert (again.exit_code, "already" in again.stderr) == (1, True)
    assert (unknown.exit_code, "no project red" in unknown.stderr) == (1, True)
    assert run_local_json("models", "rm", "tiny") == {"name": "tiny", "removed": True}
    (shown,) = run_local_json("models", "list")["models"]
    assert (shown["location"], shown["project"], shown["removed_at"] is None) == ("/srv/models/tiny", None, False)
    assert run_local("models", "rm", "tiny").exit_code == 1
