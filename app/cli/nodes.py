"""`trainyard nodes`: the machines, from the database."""

from typing import Any

import click

from app.cli.administrator import ADMINISTRATOR, newest, picked
from app.cli.database import admin_database
from app.cli.output import age, json_option, print_fields, print_json, print_table
from app.schemas.nodes import NodeSchema
from app.services import node_lists
from app.services import node_verbs as services

MOST_NODES = 10_000


@click.group()
def nodes() -> None:
    """Nodes, from the database."""


@nodes.command("list")
@json_option
def list_nodes(as_json: bool) -> None:  # noqa: FBT001
    """Every node that has ever registered."""
    with admin_database() as db, db.read() as session:
        items = [NodeSchema().dump(item) for item in node_lists.page(session, newest(MOST_NODES)).items]
    if as_json:
        print_json({"nodes": items, "total_count": len(items)})
        return
    rows = [{**item, "devices": _devices(item), "last_seen_at": age(item["last_seen_at"])} for item in items]
    names = ("name", "status", "devices", "cpu_cores", "ram_mb", "sandbox", "last_seen_at")
    heads = ("name", "status", "devices", "cores", "RAM in MB", "sandbox", "seen")
    print_table(heads, picked(rows, names), empty="no node has registered: start one with `trainyard node`")


@nodes.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:  # noqa: FBT001
    """One node and its devices."""
    with admin_database() as db, db.read() as session:
        item = NodeSchema().dump(node_lists.find(session, name))
    if as_json:
        print_json(item)
        return
    print_fields({key: value for key, value in item.items() if key != "devices"})
    click.echo()
    rows = picked(item["devices"], ("index", "type", "memory_mb", "simulated", "in_use"))
    print_table(("device", "type", "memory in MB", "simulated", "in use"), rows, empty="no devices")


@nodes.command()
@click.argument("name")
@click.option("--requeue", is_flag=True, help="Ask the running jobs to save and go back to the queue, too.")
@json_option
def drain(name: str, requeue: bool, as_json: bool) -> None:  # noqa: FBT001
    """Give NAME no new jobs; what runs there goes on."""
    with admin_database() as db:
        drained = services.drain(db, ADMINISTRATOR, name, requeue=requeue)
    _tell(name, drained.node.state, as_json=as_json, requeued_jobs=drained.requeued_jobs)


@nodes.command()
@click.argument("name")
@json_option
def enable(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Give NAME jobs again."""
    with admin_database() as db:
        enabled = services.enable(db, ADMINISTRATOR, name)
    _tell(name, enabled.node.state, as_json=as_json)


@nodes.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Forget NAME, which must be lost; it comes back if its worker does."""
    with admin_database() as db:
        services.remove(db, ADMINISTRATOR, name)
    _tell(name, "removed", as_json=as_json)


def _tell(name: str, status: str, *, as_json: bool, **more: Any) -> None:
    if as_json:
        print_json({"name": name, "status": status, **more})
        return
    said = "".join(f", {key.replace('_', ' ')}: {value}" for key, value in more.items() if value)
    click.echo(f"{name} {status}{said}")


def _devices(item: dict[str, Any]) -> str:
    """``2 × cpu, 8 × h200 (1 in use)``."""
    counts: dict[str, int] = {}
    for device in item["devices"]:
        counts[device["type"]] = counts.get(device["type"], 0) + 1
    used = sum(device["in_use"] for device in item["devices"])
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items()) + (f" ({used} in use)" if used else "")
