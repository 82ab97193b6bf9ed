"""`trainyard nodes`: the cluster's nodes."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.columns import picked
from app.cli.connection import ServerGroup, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import age, json_option, print_fields, print_json, print_table
from app.domain.names import WORD, WORD_RULE
from app.domain.nodes.sandboxes import way_out, why_none

if TYPE_CHECKING:
    from trainyard.records import Node


def _checked_labels(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    del context, parameter
    for value in values:
        if not WORD.fullmatch(value):
            raise click.BadParameter(f"{value!r:.150} {WORD_RULE}")
    return values


@click.group(cls=ServerGroup)
def nodes() -> None:
    """Show nodes; with a super admin's key drain, enable, label and remove them."""


@nodes.command("list")
@json_option
def list_nodes(as_json: bool) -> None:  # noqa: FBT001
    """List every registered node."""
    with server() as client:
        items = list(client.nodes.list(order_by="name"))
    if as_json:
        print_json({"nodes": items, "total_count": len(items)})
        return
    rows = [{**item, "devices": _devices(item), "last_seen_at": age(item["last_seen_at"])} for item in items]
    names = ("name", "status", "devices", "active_jobs", "reputation", "cpu_cores", "ram_mb", "sandbox", "last_seen_at")
    heads = ("name", "status", "devices", "jobs", "reputation", "cores", "RAM in MB", "sandbox", "seen")
    print_table(heads, picked(rows, names), empty="no registered nodes: start one with `trainyard node`")
    for item in items:
        if item["quarantine_reason"]:
            click.echo(f"{item['name']} was quarantined: {item['quarantine_reason']}")
        _print_missing_sandbox(item)


@nodes.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a node and its devices."""
    with server() as client:
        item = client.nodes.get(name)
    if as_json:
        print_json(item)
        return
    print_fields({key: value for key, value in item.items() if key != "devices"})
    click.echo()
    names = ("index", "type", "memory_mb", "simulated", "link_group", "share_in_use", "out_of_service_reason")
    heads = ("device", "type", "memory in MB", "simulated", "link group", "in use", "out of service")
    print_table(heads, picked(item["devices"], names), empty="no devices")
    _print_missing_sandbox(item)


@nodes.command()
@click.argument("name")
@job_argument
@json_option
def why(name: str, handle: str, as_json: bool) -> None:  # noqa: FBT001
    """Explain whether JOB can start on NAME: the result of every filter, and the node's score."""
    with server() as client:
        job_id = job_id_of(client, handle)
        item = client.nodes.why(name, job_id)
    if as_json:
        print_json(item)
        return
    words = {True: "can start there now", False: "cannot start there now"}
    click.echo(f"{job_id} {words[item['starts_now']]}")
    rows = [{**each, "passed": "passes" if each["passed"] else "no"} for each in item["filters"]]
    print_table(("filter", "", "why not"), picked(rows, ("filter", "passed", "reason")), empty="no filters")
    click.echo(f"\nits score there: {item['score']:g}")
    scores = picked(item["scores"], ("name", "value", "weight", "points", "meaning"))
    print_table(("score", "value", "weight", "points", "meaning"), scores, empty="no scores")


@nodes.command()
@click.argument("name")
@click.option("--requeue", is_flag=True, help="Also save and requeue the running jobs.")
@json_option
def drain(name: str, requeue: bool, as_json: bool) -> None:  # noqa: FBT001
    """Stop scheduling jobs on NAME; running jobs continue."""
    with server() as client:
        drained = client.nodes.drain(name, requeue=requeue)
    _print_status(name, drained["status"], as_json=as_json, requeued_jobs=drained["requeued_jobs"])


@nodes.command()
@click.argument("name")
@json_option
def enable(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Schedule jobs on NAME again."""
    with server() as client:
        enabled = client.nodes.enable(name)
    _print_status(name, enabled["status"], as_json=as_json)


@nodes.command()
@click.argument("name")
@click.argument("labels", metavar="[LABEL]...", nargs=-1, callback=_checked_labels)
@click.option("--remove", metavar="LABEL", multiple=True, help="Remove this label; repeatable.")
@json_option
def label(name: str, labels: tuple[str, ...], remove: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Add or remove labels of NAME, besides those of its node.toml; jobs select nodes by label."""
    if not labels and not remove:
        raise click.UsageError("give labels to add, or use --remove")
    with server() as client:
        labelled = client.nodes.change_labels(name, add=labels, remove=remove)
    print_json(labelled) if as_json else click.echo(f"{name}: {', '.join(labelled['labels']) or 'no labels'}")


@nodes.command("put-back")
@click.argument("name")
@json_option
def put_back(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Return devices of NAME to service after the unkillable process that held them is gone."""
    with server() as client:
        count = client.nodes.put_back(name)["devices"]
    if as_json:
        print_json({"name": name, "status": "devices put back" if count else "nothing to put back", "devices": count})
    elif count:
        click.echo(f"{name}: {count} device{'s' if count > 1 else ''} put back")
    else:
        click.echo(f"{name}: no device is out of service, nothing was put back")


@nodes.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Remove NAME, which must be lost; it registers again if its worker returns."""
    with server() as client:
        client.nodes.remove(name)
    _print_status(name, "removed", as_json=as_json)


def _print_status(name: str, status: str, *, as_json: bool, **more: Any) -> None:
    if as_json:
        print_json({"name": name, "status": status, **more})
        return
    details = "".join(f", {key.replace('_', ' ')}: {value}" for key, value in more.items() if value)
    click.echo(f"{name} {status}{details}")


def _print_missing_sandbox(item: "Node") -> None:
    if why := why_none(item["sandbox"]):
        click.echo(f"{item['name']} takes no jobs: it {why}; {way_out(item['sandbox'])}")


def _devices(item: "Node") -> str:
    """``2 × cpu, 8 × h200 (1 in use, 1 out of service)``."""
    counts: dict[str, int] = {}
    for device in item["devices"]:
        counts[device["type"]] = counts.get(device["type"], 0) + 1
    marks = {
        "in use": sum(device["in_use"] for device in item["devices"]),
        "out of service": sum(bool(device["out_of_service_reason"]) for device in item["devices"]),
    }
    details = ", ".join(f"{number} {mark}" for mark, number in marks.items() if number)
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items()) + (f" ({details})" if details else "")
