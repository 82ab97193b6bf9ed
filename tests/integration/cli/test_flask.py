"""`flask` in a checkout: it finds the application and the administrator's groups by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def flask(folder: Path, database_url: str, *words: str) -> str:
    environment = {**os.environ, "TRAINYARD_DATA_DIR": str(folder), "TRAINYARD_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "flask", *words]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode in (0, 1), run.stderr  # 1: doctor found what to fix
    return run.stdout


def test_flask_lists_the_routes_of_the_application(tmp_path: Path, sqlite_url: str) -> None:
    assert "/v1/jobs/<job_id>" in flask(tmp_path, sqlite_url, "routes")


def test_administrators_groups_are_commands_of_flask(tmp_path: Path, sqlite_url: str) -> None:
    flask(tmp_path, sqlite_url, "db", "init")
    assert "team-a" in flask(tmp_path, sqlite_url, "projects", "create", "team-a", "--local")
    assert "no models" in flask(tmp_path, sqlite_url, "models", "list", "--local")

    checks = json.loads(flask(tmp_path, sqlite_url, "doctor", "--json"))["checks"]
    assert {"settings", "database"} <= {row["check"] for row in checks}
