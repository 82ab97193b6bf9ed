"""The commands cancel, checkpoint, pause, resume, retry and compare: defined once, run over HTTP or on the database.

`trainyard cancel` asks the server, `trainyard jobs cancel` the database; options, output and exit codes are the same.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import click

from app.cli.output import duration, json_option, print_json, print_table
from app.cli.resources import resource_option
from app.cli.text_options import checked_text

LONGEST_REASON = 1000
LONGEST_ID = 128
POLL_SECONDS = 0.5
AXES = ("step", "seconds")
HASH_SHOWN = 12  # characters


class JobCommands(Protocol):
    """Executes the commands; each returns the job as the API shows it."""

    follow_hint: str  # printed below a job that has yet to do what was requested

    def cancel(self, job_id: str, *, reason: str) -> Mapping[str, Any]: ...

    def checkpoint(self, job_id: str) -> Mapping[str, Any]: ...

    def pause(self, job_id: str, *, saves: bool, force: bool) -> Mapping[str, Any]: ...

    def wait_paused(self, job_id: str) -> Mapping[str, Any]: ...

    def resume(self, job_id: str, *, checkpoint_id: str, from_best: bool) -> Mapping[str, Any]: ...

    def retry(
        self, job_id: str, *, checkpoint_id: str, from_start: bool, resources: Mapping[str, Any]
    ) -> Mapping[str, Any]: ...

    def compare(self, job_ids: Sequence[str], *, metrics: Sequence[str], by: str) -> Mapping[str, Any]: ...


Opened = Callable[[], AbstractContextManager[JobCommands]]


def job_commands(opened: Opened) -> list[click.Command]:
    """The commands cancel, checkpoint, pause, resume, retry and compare, in this order."""
    return [build(opened) for build in (_cancel, _checkpoint, _pause, _resume, _retry, _compare)]


def _cancel(opened: Opened) -> click.Command:
    @click.command()
    @click.argument("job_id")
    @click.option("--reason", default="", callback=checked_text(LONGEST_REASON), help="Recorded in the job's history.")
    @json_option
    def cancel(job_id: str, reason: str, as_json: bool) -> None:  # noqa: FBT001
        """Cancel JOB_ID in any state; its checkpoints stay."""
        with opened() as jobs:
            _show(jobs.cancel(job_id, reason=reason), jobs, as_json=as_json)

    return cancel


def _checkpoint(opened: Opened) -> click.Command:
    @click.command()
    @click.argument("job_id")
    @json_option
    def checkpoint(job_id: str, as_json: bool) -> None:  # noqa: FBT001
        """Save a checkpoint of the running JOB_ID; it continues."""
        with opened() as jobs:
            _show(jobs.checkpoint(job_id), jobs, as_json=as_json)

    return checkpoint


def _pause(opened: Opened) -> click.Command:
    @click.command()
    @click.argument("job_id")
    @click.option("--no-checkpoint", is_flag=True, help="Stop without saving.")
    @click.option("--force", is_flag=True, help="Stop it also when its checkpoint can't be saved.")
    @click.option("--wait", "waits", is_flag=True, help="Return once it is PAUSED; exit code 1 if it continues.")
    @json_option
    def pause(job_id: str, no_checkpoint: bool, force: bool, waits: bool, as_json: bool) -> None:  # noqa: FBT001
        """Save JOB_ID and stop it until it is resumed."""
        with opened() as jobs:
            job = jobs.pause(job_id, saves=not no_checkpoint, force=force)
            if waits:
                job = jobs.wait_paused(job_id)
            _show(job, jobs, as_json=as_json)
        if waits and job["status"] != "PAUSED":
            sys.exit(1)

    return pause


def _resume(opened: Opened) -> click.Command:
    @click.command()
    @click.argument("job_id")
    @click.option(
        "--checkpoint", default="", callback=checked_text(LONGEST_ID), help="Continue from this one, not the newest."
    )
    @click.option("--best", is_flag=True, help="Continue from its best checkpoint.")
    @json_option
    def resume(job_id: str, checkpoint: str, best: bool, as_json: bool) -> None:  # noqa: FBT001
        """Put the paused JOB_ID back into its queue."""
        with opened() as jobs:
            _show(jobs.resume(job_id, checkpoint_id=checkpoint, from_best=best), jobs, as_json=as_json)

    return resume


def _retry(opened: Opened) -> click.Command:
    @click.command()
    @click.argument("job_id")
    @click.option(
        "--checkpoint", default="", callback=checked_text(LONGEST_ID), help="Start from this one, not the newest."
    )
    @click.option("--from-start", is_flag=True, help="Start without any checkpoint.")
    @resource_option
    @json_option
    def retry(job_id: str, checkpoint: str, from_start: bool, resources: dict[str, Any], as_json: bool) -> None:  # noqa: FBT001
        """Retry the finished JOB_ID as a new job of its project; prints the new job."""
        with opened() as jobs:
            child = jobs.retry(job_id, checkpoint_id=checkpoint, from_start=from_start, resources=resources)
            _show(child, jobs, as_json=as_json)

    return retry


def _compare(opened: Opened) -> click.Command:
    @click.command()
    @click.argument("job_ids", nargs=-1, required=True, metavar="JOB JOB…", callback=_checked_ids)
    @click.option(
        "--metric",
        "metrics",
        multiple=True,
        callback=_checked_ids,
        help="Only this one; repeatable. Default: those of most jobs.",
    )
    @click.option("--by", type=click.Choice(AXES), default="step", show_default=True, help="Axis of curves in JSON.")
    @json_option
    def compare(job_ids: tuple[str, ...], metrics: tuple[str, ...], by: str, as_json: bool) -> None:  # noqa: FBT001
        """Compare 2 to 20 jobs: what differs in their documents, and their metrics. JSON has curves, too."""
        with opened() as jobs:
            found = jobs.compare(job_ids, metrics=metrics, by=by)
        print_json(found) if as_json else _show_comparison(found)

    return compare


def _checked_ids(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(checked_text(LONGEST_ID)(ctx, param, value) for value in values)


def _show_comparison(found: Mapping[str, Any]) -> None:
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
    yield from (job["job_id"], job["name"], job["status"], job["training_type"])
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


def _show(job: Mapping[str, Any], jobs: JobCommands, *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    requested = f" ({job['requested']} requested)" if job.get("requested") else ""
    click.echo(f"{job['job_id']} {job['status']}{requested}")
    if jobs.follow_hint and job.get("requested"):
        click.echo(jobs.follow_hint.format(job["job_id"]), err=True)
