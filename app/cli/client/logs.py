"""`trainyard logs`: a job's log lines; -f follows new ones."""

from collections.abc import Mapping
from typing import Any

import click

from app.cli.client.connection import server
from app.cli.output import json_option, print_json_line, printable


@click.command()
@click.argument("job_id")
@click.option("-f", "--follow", "follows", is_flag=True, help="Follow new lines until the job ends.")
@click.option("--tail", type=click.IntRange(0), default=200, show_default=True, help="Number of last lines to print.")
@click.option("--rank", type=click.IntRange(0), help="Only lines of this rank.")
@json_option
def logs(job_id: str, follows: bool, tail: int, rank: int | None, as_json: bool) -> None:  # noqa: FBT001
    """Print the log lines of the ranks of JOB_ID."""
    with server() as client:
        lines = (
            (event.data for event in client.follow_logs(job_id, tail=tail, rank=rank))
            if follows
            else iter(client.logs(job_id, tail=tail, rank=rank))
        )
        try:
            for line in lines:
                print_json_line(line) if as_json else click.echo(_text(line))
        except KeyboardInterrupt:
            click.echo(f"\n{job_id} continues to run.", err=True)


def _text(line: Mapping[str, Any]) -> str:
    at = str(line.get("at", ""))[11:19]
    return f"{at} [{line.get('rank', 0)}] {printable(str(line.get('line', '')))}"
