"""docs/operations.md names commands, options, settings, files and sections that there are."""

import re
import shlex
from pathlib import Path

import click
import pytest

from app.cli.main import main
from config.settings import CLIENT_VARIABLES, settings_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
# A command of ours, wherever it stands in a line, up to what ends it in a shell.
COMMAND = re.compile(r"(?:^|[\s/$(])trainyard(?:-admin)? ([a-z][^#|;)&>\n]*)")
COMMANDS = sorted({match.strip() for block in BLOCKS for match in COMMAND.findall(block)} - {"…"})


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and the words left for it."""
    command: click.Command = main
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


def test_there_are_commands_to_look_at():
    assert len(COMMANDS) > 20
    assert "doctor" in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists_with_its_options(line):
    words = [word for word in shlex.split(line) if word != "…"]

    command, rest = resolved(words)

    options = {name for option in command.params for name in option.opts}
    assert [word for word in rest if word.startswith("-") and word not in options] == []


def test_every_setting_that_is_named_exists():
    known = {variable for variable, _, _ in settings_table()} | CLIENT_VARIABLES
    compose = set(re.findall(r"\$\{(TRAINYARD_\w+)", (ROOT / "docker-compose.yml").read_text()))

    named = {name for name in re.findall(r"\bTRAINYARD_[A-Z0-9_]+[A-Z0-9]", PAGE) if f"{name}_…" not in PAGE}

    assert named - known - compose == set()


def test_every_link_leads_somewhere():
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(
            r"^#+ (.*)$", re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
        )
    }
    links = re.findall(r"\]\(([^)\s]+)\)", PAGE)

    assert [link for link in links if link.startswith("#") and link[1:] not in anchors] == []
    files = [link.partition("#")[0] for link in links if not link.startswith(("#", "http"))]
    assert [name for name in files if not (ROOT / "docs" / name).exists()] == []


def test_every_file_of_deploy_is_named():
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.parent.name != "systemd"]

    assert [path.name for path in files if f"deploy/{path.parent.name}/{path.name}" not in PAGE] == []
