"""The documentation names commands, options, settings and files that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from app.cli.main import main
from config.environment import CLIENT_VARIABLES
from config.settings import settings_table

ROOT = Path(__file__).parents[3]
FOLDERS = ("tutorials", "how-to", "reference", "explanation")
PAGES = [ROOT / "README.md", *(path for name in FOLDERS for path in sorted((ROOT / "docs" / name).glob("*.md")))]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
# A command of ours, wherever it stands in a line, up to what ends it in a shell.
COMMAND = re.compile(r"(?:^|[\s/(])trainyard(?:-admin)? (?!import )([a-z][^#|;)&>$\n]*)")
OF_SOURCES = re.compile(r"TRAINYARD_DATA_\d+")  # one for each source of a job
COMMANDS = sorted({match.strip() for block in BLOCKS for match in COMMAND.findall(block)} - {"…"})


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and the words left for it."""
    command: click.Command = main
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


def test_documentation_contains_commands():
    assert len(COMMANDS) > 20
    assert "doctor" in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists_with_its_options(line):
    ours = line.partition(" -- ")[0]  # behind it stands a command of the job's
    words = [word for word in shlex.split(ours) if word != "…"]

    command, rest = resolved(words)

    options = {name for option in command.params for name in option.opts}
    assert [word for word in rest if word.startswith("-") and word not in options] == []


def test_every_setting_that_is_named_exists():
    known = {variable for variable, _, _ in settings_table()} | CLIENT_VARIABLES
    compose = set(re.findall(r"\$\{(TRAINYARD_\w+)", (ROOT / "docker-compose.yml").read_text()))

    named = {name for name in re.findall(r"\bTRAINYARD_[A-Z0-9_]+[A-Z0-9]", PAGE) if f"{name}_…" not in PAGE}

    assert {name for name in named - known - compose if not OF_SOURCES.fullmatch(name)} - of_ranks() == set()


def of_ranks() -> set[str]:
    """The variables that ranks are given."""
    code = [path for folder in ("workers", "trainyard") for path in (ROOT / folder).rglob("*.py")]
    return {name for path in code for name in re.findall(r'"(TRAINYARD_[A-Z_]+)"', path.read_text(encoding="utf-8"))}


def test_every_file_of_deploy_is_named():
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.parent.name != "systemd"]

    assert [path.name for path in files if f"deploy/{path.parent.name}/{path.name}" not in PAGE] == []
