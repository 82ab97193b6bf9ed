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
