"""`trainyard queues`: queues of waiting jobs, in the database."""

import contextlib
from typing import Any

import click

from app.cli.admin.administrator import ADMINISTRATOR, picked
from app.cli.admin.database import admin_database
from app.cli.output import json_option, print_json, print_table
from app.cli.text_options import checked_name
from app.domain.errors import Conflict
from app.schemas.queues import MAX_JOBS

_LIMITS = {"max_running_jobs": "running", "max_waiting_jobs": "waiting"}


@click.group()
def queues() -> None:
    """Manage queues, in the database."""


@queues.command("list")
@json_option
def list_queues(as_json: bool) -> None:  # noqa: FBT001
    """List every queue with its counts of waiting and running jobs."""
    from app.schemas.queues import QueuesSchema
    from app.services.queues import queues as services

    with admin_database() as db, db.read() as session:
        answer = QueuesSchema().dump({"queues": services.summaries(session, ADMINISTRATOR)})
    if as_json:
        print_json(answer)
        return
    rows = [{**each, "status": _status(each)} for each in answer["queues"]]
    names = ("name", "status", "waiting", "max_waiting_jobs", "running", "max_running_jobs", "weight")
    heads = ("name", "status", "waiting", "max waiting", "running", "max running", "weight")
    print_table(heads, picked(rows, names), empty="no queues")


@queues.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def show(name: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001
    """Show waiting jobs in scheduling order: all of them, or those of the queue NAME."""
    from app.models.base import utc_now
    from app.schemas.queues import WaitingJobSchema
    from app.services.queues import queues as services
    from app.services.requests.pagination import PageRequest

    request = PageRequest(size=limit, order="priority")
    with admin_database() as db, db.read() as session:
        if name is not None:
            services.require(session, name, field="name")
        line = services.line(session, ADMINISTRATOR, request, queue=name, now=utc_now())
        entries = WaitingJobSchema(many=True).dump(line.items)
    if as_json:
        print_json({"entries": entries, "total_count": line.total_count})
        return
    names = ("position", "job_id", "name", "project", "queue", "priority", "status", "pending_reason")
    heads = ("position", "id", "name", "project", "queue", "priority", "status", "waits for")
    print_table(heads, picked(entries, names), empty="no waiting jobs")


@queues.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Create a queue; an existing one is left as it is."""
    from app.schemas.queues import QueueSchema
    from app.services.queues import queues as services

    with admin_database() as db:
        with contextlib.suppress(Conflict):
            services.create(db, ADMINISTRATOR, name, {})
        with db.read() as session:
            queue = QueueSchema().dump(services.summary(session, ADMINISTRATOR, name))
    print_json(queue) if as_json else click.echo(name)


@queues.command()
@click.argument("name")
@json_option
def pause(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Pause NAME: it accepts jobs and starts none; running jobs continue."""
    _change(name, {"paused": True}, as_json=as_json)


@queues.command()
@click.argument("name")
@json_option
def resume(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Resume NAME: it starts jobs again."""
    _change(name, {"paused": False}, as_json=as_json)


@queues.command()
@click.argument("name")
@click.option("--running", type=click.IntRange(1, MAX_JOBS), help="Maximum running jobs of the queue.")
@click.option(
    "--waiting", type=click.IntRange(0, MAX_JOBS), help="Maximum waiting jobs; further submissions are refused."
)
@click.option("--no-running", is_flag=True, help="Remove the limit of running jobs.")
@click.option("--no-waiting", is_flag=True, help="Remove the limit of waiting jobs.")
@json_option
def limit(name: str, as_json: bool, **wanted: Any) -> None:  # noqa: FBT001
    """Set or remove limits of NAME; the others are unchanged."""
    changes: dict[str, int | None] = {}
    for what, column in (("running", "max_running_jobs"), ("waiting", "max_waiting_jobs")):
        if wanted[what] is not None and wanted[f"no_{what}"]:
            raise click.UsageError(f"--{what} and --no-{what} contradict each other")
        if wanted[what] is not None or wanted[f"no_{what}"]:
            changes[column] = wanted[what]
    if not changes:
        raise click.UsageError("give at least one of --running, --waiting, --no-running, --no-waiting")
    _change(name, changes, as_json=as_json)


@queues.command()
@click.argument("name")
@click.argument("value", type=click.FloatRange(0.01, 1000), required=False)
@click.option(
    "--none", "is_none", is_flag=True, help="Remove the weight: share capacity with all other queues without one."
)
@json_option
def weight(name: str, value: float | None, is_none: bool, as_json: bool) -> None:  # noqa: FBT001
    """Set the weight of NAME: its share of the capacity of each project."""
    if (value is None) is not is_none:
        raise click.UsageError("give a weight from 0.01 to 1000, or --none")
    _change(name, {"weight": value}, as_json=as_json)


def _change(name: str, changes: dict[str, Any], *, as_json: bool) -> None:
    from app.schemas.queues import QueueSchema
    from app.services.queues import queues as services

    with admin_database() as db:
        queue = QueueSchema().dump(services.change(db, ADMINISTRATOR, name, changes))
    if as_json:
        print_json(queue)
        return
    limits = [f"{word} at most {queue[key]}" for key, word in _LIMITS.items() if queue[key] is not None]
    limits += [f"weight {queue['weight']:g}"] if queue["weight"] is not None else []
    click.echo(", ".join([f"{name} {_status(queue)}", *limits]))


def _status(queue: dict[str, Any]) -> str:
    return "paused" if queue["paused"] else "open"
