"""`trainyard compare`: what differs between jobs in their documents, metrics and weights."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import click

from app.cli.choice import SuggestingChoice
from app.cli.connection import local_option, server
from app.cli.handles import job_ids_of, jobs_argument
from app.cli.output import duration, json_option, print_json, print_table, short_id
from app.cli.text_options import checked_text

AXES = ("step", "seconds", "tokens")
HASH_SHOWN = 12  # characters
LONGEST_METRIC = 128


def _checked_metrics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(checked_text(LONGEST_METRIC)(ctx, param, value)) for value in values)


@click.command()
@jobs_argument
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    callback=_checked_metrics,
    help="Only this one; repeatable. Default: those of most jobs.",
)
@click.option("--by", type=SuggestingChoice(AXES), default="step", show_default=True, help="Axis of curves in JSON.")
@local_option
@json_option
def compare(*, handles: tuple[str, ...], metrics: tuple[str, ...], by: str, as_json: bool) -> None:
    """Compare 2 to 20 jobs: what differs in their documents, and their metrics. JSON has curves, too."""
    with server() as client:
        axis = cast("Literal['step', 'seconds', 'tokens']", by)
        found = client.compare(job_ids_of(client, handles), metrics=metrics, by=axis)
    print_json(found) if as_json else _show(found)


def _show(found: Mapping[str, Any]) -> None:
    """Three tables: the jobs by number, and the differences and metrics of each number."""
    numbers = [str(number) for number, _ in enumerate(found["jobs"], start=1)]
    heads = ("", "id", "name", "status", "type", "devices", "duration", "steps", "weights")
    rows = [(number, *_job_cells(job)) for number, job in zip(numbers, found["jobs"], strict=True)]
    print_table(heads, rows, empty="")
    click.echo()
    differences = [(row["field"], *row["values"]) for row in found["differences"]]
    print_table(("field", *numbers), differences, empty="The documents are the same.")
    click.echo()
    print_table(("metric", *numbers), _metric_rows(found["metrics"]), empty="No metrics yet.")
    if found["left_out"]:
        click.echo(f"Left out, select with --metric: {', '.join(found['left_out'])}")


def _job_cells(job: Mapping[str, Any]) -> Iterator[Any]:
    yield from (short_id(job["job_id"]), job["name"], job["status"], job["training_type"])
    devices = job["devices"]
    yield f"{devices['count']} × {devices['type']}" if devices else ""
    yield from (duration(job["elapsed_seconds"]), job["steps"], (job["model_hash"] or "")[:HASH_SHOWN])


def _metric_rows(metrics: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Final values, with their differences to the first job."""
    for name, metric in metrics.items():
        values = zip(metric["final"], metric["final_difference"], strict=True)
        yield name, *(_metric_cell(value, difference) for value, difference in values)


def _metric_cell(value: float | str | None, difference: float | None) -> str:
    if not isinstance(value, int | float):
        return value or ""
    return f"{value:.4g} ({difference:+.3g})" if difference else f"{value:.4g}"
