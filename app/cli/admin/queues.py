"""`trainyard queues`: the waiting lines, in the database."""

import contextlib
from typing import Any

import click

from app.cli.admin.administrator import ADMINISTRATOR, picked
from app.cli.admin.database import admin_database
from app.cli.output import json_option, print_json, print_table
from app.cli.text_options import checked_name
from app.domain.errors import Conflict
from app.models.base import utc_now
from app.schemas.queues import MOST_JOBS, EntrySchema, QueueSchema, QueuesSchema
from app.services.queues import queues as services
from app.services.requests.pagination import PageRequest

_LIMITS = {"max_running_jobs": "running", "max_waiting_jobs": "waiting"}


@click.group()
def queues() -> None:
    """Queues, from the database."""


@queues.command("list")
@json_option
def list_queues(as_json: bool) -> None:  # noqa: FBT001
    """Every queue with how many jobs wait and run."""
    with admin_database() as db, db.read() as session:
        answer = QueuesSchema().dump({"queues": services.summaries(session, ADMINISTRATOR)})
    if as_json:
        print_json(answer)
        return
    rows = [{**each, "status": _status(each)} for each in answer["queues"]]
    names = ("name", "status", "waiting", "max_waiting_jobs", "running", "max_running_jobs", "weight")
    heads = ("name", "status", "waiting", "of at most", "running", "of at most", "weight")
    print_table(heads, picked(rows, names), empty="no queues")


@queues.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def show(name: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001
    """The jobs that wait, in the order in which they will be served; all of them, or those of the queue NAME."""
    request = PageRequest(size=limit, order="priority")
    with admin_database() as db, db.read() as session:
        if name is not None:
            services.require(session, name, field="name")
        line = services.line(session, ADMINISTRATOR, request, queue=name, now=utc_now())
        entries = EntrySchema(many=True).dump(line.items)
    if as_json:
        print_json({"entries": entries, "total_count": line.total_count})
        return
    names = ("position", "job_id", "name", "project", "queue", "priority", "status", "pending_reason")
    heads = ("position", "id", "name", "project", "queue", "priority", "status", "waits for")
    print_table(heads, picked(entries, names), empty="nobody waits")


@queues.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Make a queue; again is fine."""
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
    """Let NAME take jobs and start none; what runs goes on."""
    _change(name, {"paused": True}, as_json=as_json)


@queues.command()
@click.argument("name")
@json_option
def resume(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Let NAME start jobs again."""
    _change(name, {"paused": False}, as_json=as_json)


@queues.command()
@click.argument("name")
@click.option("--running", type=click.IntRange(1, MOST_JOBS), help="At most so many jobs of the queue run at a time.")
@click.option("--waiting", type=click.IntRange(0, MOST_JOBS), help="With so many waiting, more are refused.")
@click.option("--no-running", is_flag=True, help="Any number may run.")
@click.option("--no-waiting", is_flag=True, help="Any number may wait.")
@json_option
def limit(name: str, as_json: bool, **wanted: Any) -> None:  # noqa: FBT001
    """Set or take away the limits of NAME; what is not named stays."""
    changes: dict[str, int | None] = {}
    for what, column in (("running", "max_running_jobs"), ("waiting", "max_waiting_jobs")):
        if wanted[what] is not None and wanted[f"no_{what}"]:
            raise click.UsageError(f"--{what} and --no-{what} contradict each other")
        if wanted[what] is not None or wanted[f"no_{what}"]:
            changes[column] = wanted[what]
    if not changes:
        raise click.UsageError("name at least one of --running, --waiting, --no-running, --no-waiting")
    _change(name, changes, as_json=as_json)


@queues.command()
@click.argument("name")
@click.argument("value", type=click.FloatRange(0.01, 1000), required=False)
@click.option("--none", "is_none", is_flag=True, help="Share the line of all queues without a weight.")
@json_option
def weight(name: str, value: float | None, is_none: bool, as_json: bool) -> None:  # noqa: FBT001
    """Give the queue NAME its share of what each project may use."""
    if (value is None) is not is_none:
        raise click.UsageError("name a weight from 0.01 to 1000, or --none")
    _change(name, {"weight": value}, as_json=as_json)


def _change(name: str, changes: dict[str, Any], *, as_json: bool) -> None:
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
