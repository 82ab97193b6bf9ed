"""`trainyard queues`: queues of waiting jobs."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.columns import picked
from app.cli.connection import ServerGroup, server
from app.cli.output import full_option, json_option, print_json, print_table, short_id
from app.cli.text_options import checked_name
from app.domain.administration import MOST_JOBS
from trainyard.client import Conflict

if TYPE_CHECKING:
    from trainyard.records import Queue


@click.group(cls=ServerGroup)
def queues() -> None:
    """Show queues and what waits in them; with a super admin's key create, pause and limit them."""


@queues.command("list")
@json_option
def list_queues(as_json: bool) -> None:  # noqa: FBT001
    """List every queue with its counts of waiting and running jobs."""
    with server() as client:
        found = client.queues.list()
    if as_json:
        print_json({"queues": found})
        return
    rows = [{**each, "status": _status(each)} for each in found]
    names = ("name", "status", "waiting", "max_waiting_jobs", "running", "max_running_jobs", "weight")
    heads = ("name", "status", "waiting", "max waiting", "running", "max running", "weight")
    print_table(heads, picked(rows, names), empty="no queues")


@queues.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@full_option
@json_option
def show(*, name: str | None, limit: int, full: bool, as_json: bool) -> None:
    """Show waiting jobs in the order of service: all of them, or those of the queue NAME."""
    with server() as client:
        if name is not None:
            client.queues.get(name)  # refused if there is no such queue
        entries, total = client.queues.first_in_line(limit, queue=name or "")
    if as_json:
        print_json({"entries": entries, "total_count": total})
        return
    columns = {"position": "position"}
    if any("position_in_project" in entry for entry in entries):
        columns["position_in_project"] = "in project"
    columns |= {"job_id": "id", "name": "name", "project": "project", "queue": "queue", "priority": "priority"}
    columns |= {"status": "status", "pending_reason": "waits for"}
    rows = [{**entry, "job_id": short_id(entry["job_id"], full=full)} for entry in entries]
    print_table(tuple(columns.values()), picked(rows, tuple(columns)), empty="no waiting jobs")


@queues.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Create a queue; an existing one is left as it is."""
    with server() as client:
        try:
            queue = client.queues.create(name)
        except Conflict:
            queue = client.queues.get(name)
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
@click.option("--running", type=click.IntRange(1, MOST_JOBS), help="Maximum running jobs of the queue.")
@click.option(
    "--waiting", type=click.IntRange(0, MOST_JOBS), help="Maximum waiting jobs; further submissions are refused."
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
    with server() as client:
        queue = client.queues.change(name, **changes)
    if as_json:
        print_json(queue)
        return
    bounds = {"running": queue["max_running_jobs"], "waiting": queue["max_waiting_jobs"]}
    limits = [f"{word} at most {bound}" for word, bound in bounds.items() if bound is not None]
    limits += [f"weight {queue['weight']:g}"] if queue["weight"] is not None else []
    click.echo(", ".join([f"{name} {_status(queue)}", *limits]))


def _status(queue: "Queue") -> str:
    return "paused" if queue["paused"] else "open"
