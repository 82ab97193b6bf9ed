"""The command as a whole: what it lists, what it imports, and how it fails."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from app.cli.main import COMMANDS, main

SLOW = ("sqlalchemy", "celery", "flask", "redis", "torch", "alembic")
# What each takes tens of milliseconds to import, which is as long as a command takes without them.
SECTIONS = ("config.settings", "app.domain.spec.model", "app.domain.spec.inference")
CLIENT = ("http.client", "ssl", "trainyard.client")
LEAN = {
    "--help": (*SECTIONS, *CLIENT, "dataclasses"),
    "submit --help": SECTIONS,
    "jobs --help": SECTIONS,
    "nodes --help": SECTIONS,
    "schedule --help": (*SECTIONS, *CLIENT, "dataclasses"),
    "logs --help": SECTIONS,
    "watch --help": SECTIONS,
}
LEAN_HELP = """
import sys
from app.cli.main import main
main({words}, standalone_mode=False)
print("imported", sorted({modules} & set(sys.modules)))
"""


# Every command and group, hidden ones too, by its words.
HELP = """
import sys
import click
from click.testing import CliRunner
from app.cli.main import main

def words(group, *before):
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*before, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from words(command, *before, name)

commands = [(), *words(main)]
for command in commands:
    answer = CliRunner().invoke(main, [*command, "--help"])
    assert answer.output.startswith("Usage: "), answer.output
    print(" ".join(command), sorted({slow} & set(sys.modules)), sep="|")
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists_and_helps(name: str) -> None:
    answer = CliRunner().invoke(main, [name, "--help"])

    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("Usage: ")


def test_the_help_lists_every_command_with_a_line_of_its_own() -> None:
    answer = CliRunner().invoke(main, ["--help"])

    assert all(f"\n  {name} " in answer.output for name in COMMANDS)
    assert answer.exit_code == 0


def test_help_imports_nothing_slow() -> None:
    """In one new interpreter: the first command that imports something has it in its line, and all after it."""
    done = subprocess.run(
        [sys.executable, "-c", HELP.replace("{slow}", repr(set(SLOW)))], capture_output=True, text=True, check=True
    )

    imported = dict(line.split("|") for line in done.stdout.splitlines())
    assert {"", "submit", "jobs list", "db upgrade", "projects quota set", "routes"} <= set(imported)
    assert {command: modules for command, modules in imported.items() if modules != "[]"} == {}


@pytest.mark.parametrize("command", LEAN)
def test_help_imports_no_settings_and_no_sections_of_documents(command: str) -> None:
    program = LEAN_HELP.format(words=command.split(), modules=set(LEAN[command]))

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Usage: ")
    assert done.stdout.splitlines()[-1] == "imported []"


def test_an_unknown_command_is_a_usage_error_with_code_2() -> None:
    answer = CliRunner().invoke(main, ["trian"])

    assert answer.exit_code == 2
    assert "No such command 'trian'" in answer.output


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).output.startswith("trainyard, version ")


def all_of(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_of(command)
        elif not command.hidden:
            yield name, command


@pytest.mark.parametrize("group", ["jobs", "nodes", "queues", "keys", "projects", "db"])
def test_administrators_commands_all_print_json(group: str) -> None:
    commands = main.get_command(click.Context(main), group)
    assert isinstance(commands, click.Group)

    without = [name for name, each in all_of(commands) if not any("--json" in option.opts for option in each.params)]

    assert without == []
