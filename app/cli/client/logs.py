"""`trainyard logs`: a job's log lines; -f follows new ones, --grep searches."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import json_option, print_json_line, printable
from trainyard.client import Client

_PREFLIGHT = "job.preflight"


@click.command()
@job_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Follow new lines until the job ends.")
@click.option("--tail", type=click.IntRange(0), default=200, show_default=True, help="Number of last lines to print.")
@click.option("--rank", type=click.IntRange(0), help="Only lines of this rank.")
@click.option("--role", default="", metavar="ROLE", help="Only lines of this role, of a job that has roles.")
@click.option("--grep", "pattern", metavar="PATTERN", help="Only lines of the whole log that match (RE2 syntax).")
@click.option("-i", "--ignore-case", is_flag=True, help="With --grep: in any case.")
@local_option
@json_option
def logs(  # noqa: PLR0913  the options of one command
    *,
    handle: str,
    follows: bool,
    tail: int,
    rank: int | None,
    role: str,
    pattern: str | None,
    ignore_case: bool,
    as_json: bool,
) -> None:
    """Print the log lines of the ranks of JOB."""
    if pattern is not None and follows:
        raise click.UsageError("--grep searches what is written so far; omit --follow")
    with server() as client:
        job_id = job_id_of(client, handle)
        lines: Iterator[Mapping[str, Any]]
        if pattern is not None:
            searched = f"(?i){pattern}" if ignore_case else pattern
            lines = client.search_logs(job_id, pattern=searched, rank=rank, role=role)
        elif follows:
            lines = (event.data for event in client.follow_logs(job_id, tail=tail, rank=rank, role=role))
        else:
            lines = iter(client.logs(job_id, tail=tail, rank=rank, role=role))
        count = 0
        try:
            for line in lines:
                count += 1
                print_json_line(line) if as_json else click.echo(_text(line))
        except KeyboardInterrupt:
            click.echo(f"\n{job_id} continues to run.", err=True)
            return
        if not count and pattern is not None:
            click.echo("No line matches.", err=True)
            sys.exit(1)
        if not count and not as_json:
            _say_why_there_are_none(client, job_id)


def _say_why_there_are_none(client: Client, job_id: str) -> None:
    """On stderr. What its preflight found is all that there is to read of a job that failed before it started."""
    job = client.get(job_id)
    if job.status != "FAILED":
        click.echo(f"{job_id} is {job.status} and has written no lines.", err=True)
        return
    when = "without a line of its ranks" if job.attempt else "before its first attempt"
    found = [f"{job_id} failed {when}.", f"{job.error_type}: {job.error_message}"]
    for event in client.events(job_id):
        if event["type"] == _PREFLIGHT:
            found += [f"Preflight: {finding}" for finding in _findings(event["data"])]
    click.echo(printable("\n".join(found)), err=True)


def _findings(report: Mapping[str, Any]) -> list[str]:
    errors = [f"{error['error_type']}: {error['message']}" for error in report.get("errors", [])]
    skipped = [f"left to the node: {reason}" for reason in report.get("left_out", [])]
    return [*errors, *report.get("warnings", []), *skipped]


def _text(line: Mapping[str, Any]) -> str:
    at = str(line.get("at", ""))[11:19]
    return f"{at} [{line.get('rank', 0)}] {printable(str(line.get('line', '')))}"
