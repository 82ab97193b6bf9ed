"""`trainyard usage`: how much was asked of models, by key, model and day."""

from datetime import datetime
from itertools import islice

import click

from app.cli.client.connection import server
from app.cli.output import json_option, print_json, print_table
from trainyard.records import Usage

GROUPS = ("key", "model", "day")
_FIELDS = {"key": "key_id", "model": "model", "day": "day"}


@click.command()
@click.option("--by", "group", multiple=True, type=click.Choice(GROUPS), help="Repeatable; default model.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="First day, in UTC.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="Last day, in UTC.")
@click.option("--project", default="", help="Only of this project.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def usage(group: tuple[str, ...], *, project: str, limit: int, as_json: bool, **days: datetime | None) -> None:
    """Show requests and tokens of services, by model unless --by says otherwise."""
    wanted = group or ("model",)
    if (since := days["since"]) and (until := days["until"]) and until < since:
        raise click.UsageError(f"--until {until:%Y-%m-%d} is before --since {since:%Y-%m-%d}; exchange them")
    bounds = {name: f"{day:%Y-%m-%d}" for name, day in days.items() if day is not None}
    with server() as client:
        found = list(islice(client.services.usage(group=wanted, project=project, **bounds), limit))
    if as_json:
        print_json({"usage": found})
        return
    heads = (*wanted, "requests", "failures", "prompt tokens", "completion tokens")
    print_table(heads, [_row(each, wanted) for each in found], empty="nothing was asked")


def _row(used: Usage, group: tuple[str, ...]) -> tuple[object, ...]:
    counted = (used["requests"], used["failures"], used["prompt_tokens"], used["completion_tokens"])
    values = dict(used)
    return (*(values[_FIELDS[name]] for name in group), *(f"{count:,}" for count in counted))
