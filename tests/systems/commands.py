"""The command `trainyard` in the tests' own process."""

import json
from typing import Any

from click.testing import CliRunner, Result

from app.cli.main import main


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


def run_json(*arguments: str) -> Any:
    """The parsed output of the command with --json."""
    answer = run(*arguments, "--json")
    assert answer.exit_code == 0, answer.stderr
    return json.loads(answer.stdout)


def run_local(*arguments: str, **options: Any) -> Result:
    """The command with --local: on the database itself."""
    return run(*arguments, "--local", **options)


def run_local_json(*arguments: str) -> Any:
    """As `run_json`, on the database itself."""
    return run_json(*arguments, "--local")
