"""`trainyard audit`: reads the audit log."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

import click

from app.cli.admin.columns import picked
from app.cli.choice import SuggestingChoice
from app.cli.connection import ServerGroup, server
from app.cli.output import json_option, print_fields, print_json, print_json_line, print_table
from app.domain.spreadsheet_cells import as_text

Command = TypeVar("Command", bound=Callable[..., Any])

COLUMNS = ("at", "actor", "action", "target", "project", "outcome", "message")
FIELDS = ("id", "at", "project", "actor", "action", "target", "outcome", "message", "request_id", "address", "data")
# Prefixes that spreadsheets evaluate as a formula; targets and messages may hold user input.


@click.group(cls=ServerGroup)
def audit() -> None:
    """Show the audit log, as an admin that of your project: actions done or denied, with actor and target."""


def _moment(_context: click.Context, _option: click.Parameter, value: str | None) -> str:
    try:
        if value and ("T" not in value.upper() or datetime.fromisoformat(value).tzinfo is None):
            raise ValueError
    except ValueError as error:
        raise click.BadParameter(f"{value!r} must be a time such as 2026-05-17T09:30:00Z") from error
    return value or ""


def _filters(command: Command) -> Command:
    """Adds the filter options of `list` and `export`."""
    options = [
        click.option("--project", help="Only entries of this project."),
        click.option(
            "--actor", help="Only entries of this key, node or process; cli is the administrator's command line."
        ),
        click.option("--action", help="Only this action, such as key.create, or all actions on a noun, such as key."),
        click.option("--target", help="Only entries about this job, key, project, queue or node."),
        click.option("--outcome", type=SuggestingChoice(["done", "denied"]), help="Only actions with this outcome."),
        click.option(
            "--after", callback=_moment, metavar="TIME", help="Only entries after this time: 2026-05-17T09:30:00Z."
        ),
        click.option("--before", callback=_moment, metavar="TIME", help="Only entries before this time."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@audit.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def list_entries(limit: int, as_json: bool, **filters: Any) -> None:  # noqa: FBT001
    """List entries, newest first."""
    with server() as client:
        items, total = client.audit.newest(limit, **filters)
    if as_json:
        print_json({"entries": items, "total_count": total})
        return
    heads = ("at", "by", "action", "on", "project", "outcome", "message")
    print_table(heads, picked(items, COLUMNS), empty="no entries")


@audit.command()
@click.argument("entry_id")
@json_option
def show(entry_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Show one entry with all of its fields."""
    with server() as client:
        item = client.audit.get(entry_id)
    print_json(item) if as_json else print_fields(item)


@audit.command()
@_filters
@click.option("--json", "form", flag_value="json", help="One JSON object per line (the default).", default=True)
@click.option("--csv", "form", flag_value="csv", help="Comma-separated values with a header line.")
def export(form: str, **filters: Any) -> None:
    """Print every entry, oldest first."""
    with server() as client:
        items = client.audit.list(order_by="created_at", **filters)
        if form == "json":
            for item in items:
                print_json_line(item)
            return
        for line in _csv(items):
            sys.stdout.write(line)


def _csv(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    for item in items:
        writer.writerow([_cell(item[name]) for name in FIELDS])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _cell(value: object) -> str:
    text = json.dumps(value) if isinstance(value, dict) else "" if value is None else str(value)
    return as_text(text)
