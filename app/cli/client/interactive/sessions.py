"""`trainyard sessions` and `trainyard release`: what is open in a job, and its end after a failure."""

from itertools import chain
from pathlib import Path

import click

from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import age, duration, json_option, print_json, print_table
from app.domain.interactive import what_runs
from trainyard.client import Client
from trainyard.records import InteractiveSession


@click.command()
@job_argument
@click.option("--end", "session_id", default="", metavar="SESSION", help="End this one.")
@click.option("--recording", "recorded_id", default="", metavar="SESSION", help="Print what this one has shown.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A new file for the recording, as `asciinema play` takes it.",
)
@local_option
@json_option
def sessions(*, handle: str, session_id: str, recorded_id: str, out: Path | None, as_json: bool) -> None:
    """List the commands, shells and forwarded ports that were opened in JOB."""
    if session_id and recorded_id:
        raise click.UsageError("--end and --recording exclude each other")
    if out is not None and not recorded_id:
        raise click.UsageError("--out needs the --recording that it is for")
    with server() as client:
        job_id = job_id_of(client, handle)
        if session_id:
            client.end_session(job_id, session_id)
            click.echo(f"{session_id} ends")
            return
        if recorded_id:
            _save(client, job_id, recorded_id, out)
            return
        found = list(client.sessions(job_id))
    if as_json:
        print_json({"sessions": found})
        return
    columns = ("session", "kind", "beside", "what", "by", "begun", "lasted", "recorded", "state")
    print_table(columns, map(_row, found), empty=f"{job_id} has had no sessions")


@click.command()
@job_argument
@local_option
@json_option
def release(*, handle: str, as_json: bool) -> None:
    """End JOB that has failed and whose sandbox was kept."""
    with server() as client:
        job = client.release(job_id_of(client, handle))
    print_json(job.data) if as_json else click.echo(f"{job.job_id} {job.status} (release requested)")
    if not as_json:
        click.echo(f"Follow it with: trainyard watch {job.job_id}", err=True)


def _save(client: Client, job_id: str, session_id: str, out: Path | None) -> None:
    """Raises ClickException for a file that is there, which stays as it is."""
    pieces = client.recording(job_id, session_id)
    first = next(pieces, b"")  # an error comes before there is a file
    if out is None:
        for piece in chain([first], pieces):
            click.echo(piece, nl=False)
        return
    try:
        with out.open("xb") as file:
            file.write(first)
            file.writelines(pieces)
    except FileExistsError as error:
        raise click.ClickException(f"{out} exists; nothing is saved; choose another --out") from error
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror or error}") from error


def _row(session: InteractiveSession) -> tuple[object, ...]:
    what = f"port {session['port']}" if session["port"] else what_runs(session["command"])
    lasted = duration(session["seconds"]) if session["seconds"] is not None else ""
    became = session["end_reason"] or session["status"]
    whose = session["created_by_name"] or session["created_by"]
    began = f"{age(session['created_at'])} ago"
    recorded = "yes" if session["recorded"] else ""
    place = f"rank {session['rank']}"
    if session["role"] is not None:
        place = f"{session['role']} {session['index']}, {place}"
    return session["session_id"], session["kind"], place, what[:80], whose, began, lasted, recorded, became
