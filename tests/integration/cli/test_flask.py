"""`flask` in a checkout: it finds the application and the administrator's groups by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Importing takes most of a command's time: one process imports, and each command runs in a copy of it.
EACH_IN_A_COPY = """
import json, os, sys
import app.cli.own_api, app.factory
from flask.cli import main
for number, words in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        os.dup2(os.open(f"{sys.argv[2]}/{number}", os.O_CREAT | os.O_WRONLY), 1)
        sys.argv = ["flask", *words]
        main()
    status = os.waitstatus_to_exitcode(os.wait()[1])
    if status not in (0, 1):  # 1: doctor found what to fix
        sys.exit(f"flask {words}: {status}")
"""


def run(folder: Path, database_url: str, *arguments: str) -> str:
    environment = {**os.environ, "TRAINYARD_DATA_DIR": str(folder), "TRAINYARD_DATABASE_URL": database_url}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.long
def test_flask_lists_the_routes_of_the_application(tmp_path: Path, sqlite_url: str) -> None:
    assert "/v1/jobs/<job_id>" in run(tmp_path, sqlite_url, "-m", "flask", "routes")


@pytest.mark.long
def test_administrators_groups_are_commands_of_flask(tmp_path: Path, sqlite_url: str) -> None:
    commands = [
        ["db", "init"],
        ["projects", "create", "team-a", "--local"],
        ["models", "list", "--local"],
        ["doctor", "--json"],
    ]
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{EACH_IN_A_COPY}"

    run(tmp_path, sqlite_url, "-c", program, json.dumps(commands), str(tmp_path))

    _, created, models, checks = [(tmp_path / str(number)).read_text() for number in range(len(commands))]
    assert "team-a" in created
    assert "no models" in models
    assert {"settings", "database"} <= {row["check"] for row in json.loads(checks)["checks"]}
