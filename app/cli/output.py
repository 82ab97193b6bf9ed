"""Output of commands: tables for people, JSON for programs."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])

WIDEST = 2000
# Of ECMA-48: control sequences (CSI), strings such as OSC with their text, other escapes, and control characters.
# Colours (SGR) are captured.
_CONTROL = re.compile(
    r"(\x1b\[[\d;:]*m)|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]",
    re.DOTALL,
)
_PLAIN = "\x1b[0m"
STATUS_STYLES = {
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "PREEMPTED": "yellow",
    "PAUSED": "yellow",
    "TRAINING": "cyan",
    "EVALUATING": "cyan",
    "SERVING": "cyan",
    "ready": "green",
    "lost": "red",
    "draining": "yellow",
    "drained": "yellow",
    "quarantined": "red",
}


def printable(text: str) -> str:
    """Text of a job for the standard output: a terminal gets its colours, but no other command for the terminal."""
    if not sys.stdout.isatty() or not _CONTROL.search(text):
        return text
    plain = _CONTROL.sub(lambda found: found[1] or "", text)
    return plain + _PLAIN if "\x1b" in plain else plain


def unix_time(seconds: int | None) -> datetime | None:
    """The time of an answer in OpenAI's form, for tables."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def json_option(command: Command) -> Command:
    """``--json`` for a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_json_line(value: object, *, to: IO[str] | None = None) -> None:
    click.echo(json.dumps(value, default=_plain), file=to)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print rows under their column names, or ``empty`` when there are none."""
    listed = list(rows)
    if not listed:
        click.echo(empty)
        return
    _print(table_of(columns, listed))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> "Table":
    """Rows under their column names, to be drawn again and again."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(_cell(column), no_wrap=True)
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one field per line, without empty ones."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            table.add_row(name, _cell(value))
    _print(table)


def console() -> "Console":
    """A console on the current standard output, which tests and pipes replace."""
    from rich.console import Console

    return Console(highlight=False)


def duration(seconds: float | None) -> str:
    """``1:02:03`` or ``2:03``; a dash when unknown."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def age(moment: str) -> str:
    """The time since ``moment``: ``42s``, ``5m``, ``3h``, ``2d``."""
    seconds = max(0, round((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _print(table: "Table") -> None:
    from rich.console import Console

    # Full width, like `docker ps`: a truncated id can't be copied, and terminals wrap by themselves.
    out = Console(highlight=False, width=WIDEST)
    with out.capture() as captured:
        out.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_cell(part)}" for name, part in value.items())
    text = printable(str(value)).replace("[", r"\[")
    style = STATUS_STYLES.get(text)
    return f"[{style}]{text}[/]" if style else text


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value)
