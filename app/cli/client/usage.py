"""`trainyard usage`: what projects use of their quotas, and how much was asked of models."""

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.connection import server
from app.cli.output import json_option, print_json, print_table
from trainyard.client import Client
from trainyard.records import Usage

GROUPS = ("key", "model", "day")
GIGABYTE = 10**9
MOST_PROJECTS = 50
_OF_PROJECTS = ("project", "GPUs", "CPU slots", "running", "waiting", "GPU hours this month", "GB stored")
_FIELDS = {"key": "key_id", "model": "model", "day": "day"}


@click.command()
@click.option("--by", "group", multiple=True, type=SuggestingChoice(GROUPS), help="Repeatable; default model.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="First day, in UTC.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="Last day, in UTC.")
@click.option("--project", default="", help="Only of this project.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def usage(group: tuple[str, ...], *, project: str, limit: int, as_json: bool, **days: datetime | None) -> None:
    """Show what projects use of their quotas, and requests and tokens of services by model.

    With --by, --since or --until only the latter.
    """
    wanted = group or ("model",)
    if (since := days["since"]) and (until := days["until"]) and until < since:
        raise click.UsageError(f"--until {until:%Y-%m-%d} is before --since {since:%Y-%m-%d}; exchange them")
    bounds = {name: f"{day:%Y-%m-%d}" for name, day in days.items() if day is not None}
    of_services_alone = bool(group or bounds)
    with server() as client:
        projects = [] if of_services_alone else _projects(client, project)
        found = list(islice(client.services.usage(group=wanted, project=project, **bounds), limit))
    if as_json:
        print_json({"usage": found} if of_services_alone else {"projects": projects, "usage": found})
        return
    if not of_services_alone:
        print_table(_OF_PROJECTS, [_project_row(each) for each in projects], empty="no projects")
        click.echo()
    heads = (*wanted, "requests", "failures", "prompt tokens", "completion tokens")
    print_table(heads, [_row(each, wanted) for each in found], empty="nothing was asked of services")


def _projects(client: Client, name: str) -> list[Mapping[str, Any]]:
    names = [name] if name else [each["name"] for each in islice(client.projects.list(order_by="name"), MOST_PROJECTS)]
    return [client.projects.get(each) for each in names]


def _project_row(project: Mapping[str, Any]) -> tuple[str, ...]:
    """What is used, and of how much: ``3 of 8``."""
    used, quota = project["usage"], project["quota"]
    return (
        project["name"],
        _of(used["gpus"], (quota.get("gpus") or {}).get("limit")),
        _of(used["cpu_slots"], (quota.get("cpu_slots") or {}).get("limit")),
        _of(used["running_jobs"], quota.get("max_running_jobs")),
        _of(used["waiting_jobs"], quota.get("max_waiting_jobs")),
        _of(used["gpu_hours"], quota.get("gpu_hours_per_month")),
        _of(used["storage_bytes"] / GIGABYTE, quota.get("storage_gb")),
    )


def _of(used: float, limit: float | None) -> str:
    return f"{_number(used)} of {_number(limit)}" if limit is not None else _number(used)


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _row(used: Usage, group: tuple[str, ...]) -> tuple[object, ...]:
    counted = (used["requests"], used["failures"], used["prompt_tokens"], used["completion_tokens"])
    values = dict(used)
    return (*(values[_FIELDS[name]] for name in group), *(f"{count:,}" for count in counted))
