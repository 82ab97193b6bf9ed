"""Every command of `trainyard` with its arguments and options, for docs/reference/cli.md."""

from collections.abc import Iterator

import click

from app.cli.main import COMMANDS, main
from scripts.document_fields import cell

HEAD = "| command | options | what it does |\n|---|---|---|"
# Every group of commands takes them where they make sense; the page says so once.
_EVERYWHERE = ("help", "as_json", "local")


def commands() -> str:
    """A table of single commands, then one for each group."""
    context = click.Context(main, info_name="trainyard")
    found = {name: main.get_command(context, name) for name in COMMANDS}
    single = [
        row for name, each in found.items() if each and not isinstance(each, click.Group) for row in _rows(each, name)
    ]
    parts = ["\n".join(["## Commands", "", HEAD, *single])]
    for name, each in found.items():
        if isinstance(each, click.Group):
            parts.append("\n".join([f"## {name}", "", _summary(each), "", HEAD, *_rows(each, name)]))
    return "\n\n".join(parts)


def _rows(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group) and not command.invoke_without_command:
        yield from _inner_rows(command, path)
        return
    arguments = [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    options = [_option(each) for each in command.params if isinstance(each, click.Option)]
    shown = ", ".join(f"`{each}`" for each in options if each)
    words = " ".join([path, *arguments])
    yield f"| `{cell(words)}` | {cell(shown)} | {cell(_summary(command))} |"
    if isinstance(command, click.Group):
        yield from _inner_rows(command, path)


def _inner_rows(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in sorted(group.list_commands(context)):
        inner = group.get_command(context, name)
        if inner is not None:
            yield from _rows(inner, f"{path} {name}")


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    if argument.nargs == -1 and "…" not in name and "..." not in name:
        name += "…"
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> str:
    if option.hidden or option.name in _EVERYWHERE:
        return ""
    name = max((each for each in option.opts), key=len)
    if option.is_flag:
        return "/".join([name, *option.secondary_opts])
    if isinstance(option.type, click.Choice) and len(option.type.choices) <= 4:  # more would fill the line
        return f"{name} {'|'.join(map(str, option.type.choices))}"
    return f"{name} {option.metavar or name.lstrip('-').upper()}"


def _summary(command: click.Command) -> str:
    """The first paragraph of its help."""
    return " ".join((command.help or "").split("\n\n")[0].split())
