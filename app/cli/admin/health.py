"""`trainyard health`: liveness of a coordinator or node worker, for container health checks."""

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from app.cli.database import admin_database, cli_settings
from app.cli.output import json_option, print_json
from config.queues import coordinator_prefix

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from app.services.operations.heartbeat_counters import Counters


# Heartbeats are due every two seconds; one may be late.
TIMEOUT_SECONDS = 6.0
POLL_SECONDS = 0.2


@click.command()
@click.option("--coordinator", is_flag=True, help="Check the coordinators of this machine.")
@click.option("--node", "node_name", metavar="NAME", help="Check the node worker of this name.")
@json_option
def health(coordinator: bool, node_name: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Check that a process updates its heartbeat in the database; exit code 1 without one for six seconds.

    The broker is not checked: processes survive its outage, and restarting them would not bring it back.
    """
    if coordinator == (node_name is not None):
        raise click.UsageError("give exactly one of --coordinator and --node NAME")
    if node_name is not None:
        what, timeout = f"node {node_name}", max(TIMEOUT_SECONDS, 3 * _interval(node_name))
    else:
        what, timeout = f"coordinator of {socket.gethostname()}", TIMEOUT_SECONDS
    if not _advances(lambda session: _counters(session, node_name), timeout):
        raise click.ClickException(f"no heartbeat from {what} within {timeout:g} s")
    if as_json:
        print_json({"alive": True, "process": what})
    else:
        click.echo(f"{what} is alive")


def _interval(node_name: str) -> float:
    from app.services.operations import heartbeat_counters

    with admin_database() as db, db.read() as session:
        return heartbeat_counters.interval_of_node(session, node_name) or cli_settings().node.heartbeat_seconds


def _counters(session: "Session", node_name: str | None) -> "Counters":
    from app.services.operations import heartbeat_counters

    if node_name is not None:
        return heartbeat_counters.of_node(session, node_name)
    return heartbeat_counters.of_coordinators(session, coordinator_prefix())


def _advances(read: "Callable[[Session], Counters]", timeout: float) -> bool:
    """Whether a counter rises before the timeout. Polls instead of comparing timestamps: clocks may differ."""
    deadline = time.monotonic() + timeout
    with admin_database() as db:
        with db.read() as session:
            before = read(session)
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            with db.read() as session:
                if read(session).items() - before.items():
                    return True
    return False
