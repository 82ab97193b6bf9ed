"""`trainyard schedule explain`: why a job waits, and where it can start."""

from typing import TYPE_CHECKING

import click

from app.cli.admin.columns import picked
from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import json_option, print_fields, print_json, print_table
from app.domain.scheduling.filters import FREE

if TYPE_CHECKING:
    from trainyard.records import NodeFit


@local_option
@click.command()
@job_argument
@json_option
def explain(handle: str, as_json: bool) -> None:  # noqa: FBT001
    """Explain why JOB waits: its queue position, its pending reason, and each node's filters, best node first."""
    with server() as client:
        found = client.nodes.explain(job_id_of(client, handle))
    if as_json:
        print_json(found)
        return
    print_fields(found["job"])
    click.echo()
    rows = [{**fit, "starts": _starts(fit), "why": _why_not(fit), "points": _points(fit)} for fit in found["nodes"]]
    heads = ("node", "starts", "score", "points", "why not")
    print_table(heads, picked(rows, ("node", "starts", "score", "points", "why")), empty="no registered nodes")


def _starts(fit: "NodeFit") -> str:
    if fit["starts_now"]:
        return "now"
    return "later" if fit["could_hold"] else "never"


def _why_not(fit: "NodeFit") -> str:
    """The reasons of the failed filters; those about free capacity only where the job could ever fit."""
    failed = [
        each for each in fit["filters"] if not each["passed"] and (fit["could_hold"] or each["filter"] not in FREE)
    ]
    return "; ".join(each["reason"] for each in failed)


def _points(fit: "NodeFit") -> str:
    return ", ".join(f"{each['name']} {each['points']:g}" for each in fit["scores"] if each["points"])
