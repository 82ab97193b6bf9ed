"""`trainyard health`: whether a coordinator or node worker lives, for the health checks of containers and the like."""

import socket
import time
from collections.abc import Callable

import click
from sqlalchemy.orm import Session

from app.cli.admin.database import admin_database, cli_settings
from app.cli.output import json_option, print_json
from app.services.operations import liveness
from app.services.operations.liveness import Counters
from config.queues import coordinator_prefix

# Of the beats that are due every two seconds one may be late.
PATIENCE_SECONDS = 6.0
LOOK_SECONDS = 0.2


@click.command()
@click.option("--coordinator", is_flag=True, help="A coordinator of this machine.")
@click.option("--node", "node_name", metavar="NAME", help="The node worker of this name.")
@json_option
def health(coordinator: bool, node_name: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Look whether a process raises its counter in the database; exit code 1 when it does not for six seconds.

    The broker is not asked: while it is away they go on, and starting them again would not bring it back.
    """
    if coordinator == (node_name is not None):
        raise click.UsageError("name one: --coordinator, or --node NAME")
    if node_name is not None:
        what, patience = f"node {node_name}", max(PATIENCE_SECONDS, 3 * _interval(node_name))
    else:
        what, patience = f"coordinator of {socket.gethostname()}", PATIENCE_SECONDS
    if not _advances(lambda session: _counters(session, node_name), patience):
        raise click.ClickException(f"no {what} gave a sign of life within {patience:g} s")
    if as_json:
        print_json({"alive": True, "process": what})
    else:
        click.echo(f"{what} is alive")


def _interval(node_name: str) -> float:
    with admin_database() as db, db.read() as session:
        return liveness.interval_of_node(session, node_name) or cli_settings().node.heartbeat_seconds


def _counters(session: Session, node_name: str | None) -> Counters:
    if node_name is not None:
        return liveness.of_node(session, node_name)
    return liveness.of_coordinators(session, coordinator_prefix())


def _advances(look: Callable[[Session], Counters], patience: float) -> bool:
    """Whether one of the counters rises. No clock but our own is trusted, therefore we stay and look."""
    deadline = time.monotonic() + patience
    with admin_database() as db:
        with db.read() as session:
            before = look(session)
        while time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            with db.read() as session:
                if look(session).items() - before.items():
                    return True
    return False
