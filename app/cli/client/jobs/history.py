"""`trainyard events` and `attempts`: what has happened to a job."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import duration, json_option, print_json, print_json_line, print_table, printable
from trainyard.records import Attempt

HEADS = ("at", "event", "status", "by", "message")


@click.command()
@job_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="Follow new events until the job ends.")
@local_option
@json_option
def events(*, handle: str, follows: bool, as_json: bool) -> None:
    """Show the events of JOB, oldest first. With --follow, JSON is one object per line."""
    with server() as client:
        job_id = job_id_of(client, handle)
        if not follows:
            found = list(client.events(job_id))
            print_json(found) if as_json else print_table(HEADS, map(row_of, found), empty="no events")
            return
        try:
            for event in client.follow_events(job_id):
                print_json_line(event.data) if as_json else click.echo(_line(event.data))
        except KeyboardInterrupt:
            click.echo(f"\n{job_id} continues to run.", err=True)


@click.command()
@job_argument
@local_option
@json_option
def attempts(*, handle: str, as_json: bool) -> None:
    """Show the attempts of JOB: where and how long each ran, and why it ended."""
    with server() as client:
        found = client.attempts(job_id_of(client, handle))
    if as_json:
        print_json(found)
        return
    heads = ("attempt", "nodes", "started", "duration", "start", "steps", "ended", "why")
    print_table(heads, map(_attempt_row, found), empty="no attempts")


def row_of(event: Mapping[str, Any]) -> tuple[str | None, ...]:
    return (_short(event["at"]), event["type"], event["to_status"], event["actor"], event["message"])


def _line(event: Mapping[str, Any]) -> str:
    parts = row_of(event)
    return printable("  ".join(part for part in parts if part))


def _attempt_row(attempt: Attempt) -> tuple[object, ...]:
    started, ended = attempt["started_at"], attempt["ended_at"]
    steps = f"{attempt['start_step']}–{attempt['end_step']}" if attempt["end_step"] is not None else ""
    return (
        attempt["number"],
        attempt["node_names"],
        _short(started or ""),
        duration(_seconds(started, ended)) if started and ended else "",
        attempt["start_type"],
        steps,
        attempt["end_reason"],
        attempt["cause"],
    )


def _seconds(started: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()


def _short(moment: str) -> str:
    return moment[:19].replace("T", " ")
