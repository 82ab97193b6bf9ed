"""`trainyard checkpoints` and `report`: what a job has saved, and what came of it."""

import click

from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import duration, json_option, print_fields, print_json, print_table
from trainyard.records import Checkpoint

MEGABYTE = 1_000_000


@click.command()
@job_argument
@click.option("-q", "--quiet", is_flag=True, help="Print only the ids.")
@local_option
@json_option
def checkpoints(*, handle: str, quiet: bool, as_json: bool) -> None:
    """List the checkpoints of JOB; `resume --checkpoint` and `retry --checkpoint` take their ids."""
    with server() as client:
        found = client.checkpoints(job_id_of(client, handle))
    if as_json:
        print_json(found)
    elif quiet:
        click.echo("".join(f"{each['checkpoint_id']}\n" for each in found), nl=False)
    else:
        heads = ("id", "step", "epoch", "MB", "", "metrics", "created")
        print_table(heads, map(_row, found), empty="no checkpoints")


@click.command()
@job_argument
@local_option
@json_option
def report(*, handle: str, as_json: bool) -> None:
    """Show the completion report of JOB, which has ended: model, final metrics, time, evaluations."""
    with server() as client:
        found = client.report(job_id_of(client, handle))
    if as_json:
        print_json(found)
        return
    goodput = found["goodput"]
    shown = {
        **{name: value for name, value in found.items() if name not in ("goodput", "evaluations", "error_stack")},
        "compute_time_ms": duration(found["compute_time_ms"] / 1000),
        "gpu_time_ms": duration(found["gpu_time_ms"] / 1000),
        "goodput": f"{goodput['ratio']:.0%}" if goodput else "",
    }
    names = {"compute_time_ms": "compute_time", "gpu_time_ms": "gpu_time"}
    print_fields({names.get(name, name): value for name, value in shown.items()})
    for evaluation in found["evaluations"]:
        print_fields({"evaluation": dict(evaluation)})


def _row(saved: Checkpoint) -> tuple[object, ...]:
    marks = [word for word, holds in (("best", saved["is_best"]), ("incomplete", not saved["is_complete"])) if holds]
    return (
        saved["checkpoint_id"],
        saved["step"],
        float(saved["epoch"]),
        f"{saved['size_bytes'] / MEGABYTE:,.1f}",
        marks,
        saved["metrics"],
        saved["created_at"][:19].replace("T", " "),
    )
