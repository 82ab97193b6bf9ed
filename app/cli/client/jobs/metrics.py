"""`trainyard metrics`: the latest values of a job, a curve in the terminal, or every point for other programs."""

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from app.cli.client.curve import draw
from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import json_option, print_json, print_table
from app.domain.spreadsheet_cells import as_text

PLOTTED = "loss"


@click.command()
@job_argument
@click.option("--name", "names", multiple=True, help="Only this metric; repeatable.")
@click.option("--plot", "plots", is_flag=True, help="Draw curves: of the metrics of --name, else of the loss.")
@click.option("--csv", "as_csv", is_flag=True, help="Print name, step, time and value of each point.")
@click.option("--max-points", type=click.IntRange(2, 10_000), help="Most points of each metric.")
@local_option
@json_option
def metrics(
    *, handle: str, names: tuple[str, ...], plots: bool, as_csv: bool, max_points: int | None, as_json: bool
) -> None:
    """Show the latest metrics of JOB."""
    with server() as client:
        found = client.metrics(job_id_of(client, handle), names=names, max_points=max_points)
    if missing := [name for name in names if name not in found["series"] and name not in found["latest"]]:
        known = ", ".join(sorted(found["latest"])) or "none yet"
        raise click.ClickException(f"the job has no metric {', '.join(missing)}; it has: {known}")
    if as_json:
        print_json(found)
    elif as_csv:
        _print_csv(found["series"])
    else:
        _print_latest(
            found["series"], {name: value for name, value in found["latest"].items() if _is_wanted(name, names)}
        )
        for name in (names or (PLOTTED,)) if plots else ():
            _print_curve(name, found["series"].get(name, []))


def _is_wanted(name: str, names: Sequence[str]) -> bool:
    return not names or name in names


def _print_csv(series: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("name", "step", "at", "value"))
    for name, points in series.items():
        table.writerows((as_text(name), *point) for point in points)


def _print_latest(series: Mapping[str, Sequence[Sequence[Any]]], latest: Mapping[str, float | str]) -> None:
    rows = [(name, value, points[-1][0] if (points := series.get(name)) else "") for name, value in latest.items()]
    print_table(("metric", "latest", "step"), rows, empty="no metrics yet")


def _print_curve(name: str, points: Sequence[Sequence[Any]]) -> None:
    finite = [(float(step), float(value)) for step, _, value in points if _is_finite(value)]
    if not finite:
        click.echo(f"\n{name}: no points to draw")
        return
    click.echo(f"\n{name} by step")
    for line in draw(finite):
        click.echo(line)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
