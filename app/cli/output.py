"""Output of commands: tables for people, JSON for programs."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar
from unicodedata import combining, east_asian_width

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])

# Of ECMA-48: control sequences (CSI), strings such as OSC with their text, other escapes, and control characters.
# Colours (SGR) are captured.
_CONTROL = re.compile(
    r"(\x1b\[[\d;:]*m)|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]",
    re.DOTALL,
)
_PLAIN = "\x1b[0m"
SHORT_ID = 8
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
    # Eager: arguments that are resolved while the command line is read print their errors so, too.
    return click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print JSON.")(command)


def full_option(command: Command) -> Command:
    """``--full`` for a command that lists rows by short ids."""
    return click.option("--full", is_flag=True, help="Show whole ids.")(command)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_json_line(value: object, *, to: IO[str] | None = None) -> None:
    click.echo(json.dumps(value, default=_plain), file=to)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows under their column names, or ``empty`` when there are none."""
    listed = list(rows)
    if not listed:
        click.echo(empty)
        return
    # Not by rich: importing it takes longer than most commands.
    for line in _lines(
        [[_bold(column) for column in map(_text, columns)], *(list(map(_styled, row)) for row in listed)]
    ):
        click.echo(line)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> "Table":
    """Rows under their column names, to be drawn again and again."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(_cell(column), no_wrap=True)
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one field per line, without empty ones."""
    rows = [[_bold(name), _styled(value)] for name, value in fields.items() if value not in (None, "", [], {})]
    for line in _lines(rows):
        click.echo(line)


def console() -> "Console":
    """A console on the current standard output, which tests and pipes replace."""
    from rich.console import Console

    return Console(highlight=False)


def short_id(whole: str, *, full: bool = False) -> str:
    """The end of an id, which commands take for the whole; ids of one day begin alike. ``full``: all of it."""
    return whole if full else whole[-SHORT_ID:]


def duration(seconds: float | None) -> str:
    """``1:02:03`` or ``2:03``; a dash when unknown."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def seconds_between(first: str | None, last: str | None) -> float | None:
    """Seconds between two times of an answer; None when one of them is not known."""
    if not first or not last:
        return None
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def moment(at: str | None) -> str:
    """A time of an answer in UTC, to the second: ``2026-11-29 09:50:58``; a dash when it is not known."""
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at else "–"


def age(moment: str) -> str:
    """The time since ``moment``: ``42s``, ``5m``, ``3h``, ``2d``."""
    seconds = max(0, round((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells in columns. Full width, like `docker ps`: a truncated id can't be copied, and terminals wrap by themselves.

    A cell of several lines stays in its column.
    """
    split = [[cell.split("\n") for cell in row] for row in rows]
    widths = [max((_width(line) for cell in column for line in cell), default=0) for column in zip(*split, strict=True)]
    for row in split:
        for number in range(max(map(len, row), default=0)):
            parts = [cell[number] if number < len(cell) else "" for cell in row]
            padded = [part + " " * (width - _width(part)) for part, width in zip(parts, widths, strict=True)]
            yield "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """Columns of a terminal that a text takes, without its colours."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    plain = click.unstyle(text)
    wide = sum(east_asian_width(each) in "WF" for each in plain)
    return len(plain) + wide - sum(bool(combining(each)) for each in plain)


def _bold(text: str) -> str:
    return click.style(text, bold=True) if sys.stdout.isatty() else text


def _styled(value: object) -> str:
    text = printable(_text(value))
    style = STATUS_STYLES.get(text)
    return click.style(text, fg=style) if style and sys.stdout.isatty() else text


def _cell(value: object) -> str:
    """For rich."""
    text = printable(_text(value)).replace("[", r"\[")
    style = STATUS_STYLES.get(text)
    return f"[{style}]{text}[/]" if style else text


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_nested(part)}" for name, part in value.items())
    return str(value)


def _nested(value: object) -> str:
    """Of an object inside an object: in brackets, or which of them has a field can't be seen."""
    return f"({_text(value)})" if isinstance(value, dict) and value else _text(value)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value)
