"""`trainyard sessions` and `trainyard release`: what is open in a job, and its end after a failure."""

import click

from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import age, duration, json_option, print_json, print_table
from trainyard.records import InteractiveSession


@click.command()
@job_argument
@click.option("--end", "session_id", default="", metavar="SESSION", help="End this one.")
@local_option
@json_option
def sessions(*, handle: str, session_id: str, as_json: bool) -> None:
    """List the commands, shells and forwarded ports that were opened in JOB."""
    with server() as client:
        job_id = job_id_of(client, handle)
        if session_id:
            client.end_session(job_id, session_id)
            click.echo(f"{session_id} ends")
            return
        found = list(client.sessions(job_id))
    if as_json:
        print_json({"sessions": found})
        return
    columns = ("session", "kind", "rank", "what", "by", "begun", "lasted", "state")
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


def _row(session: InteractiveSession) -> tuple[object, ...]:
    what = f"port {session['port']}" if session["port"] else " ".join(session["command"])
    lasted = duration(session["seconds"]) if session["seconds"] is not None else ""
    became = session["end_reason"] or session["status"]
    whose = session["created_by_name"] or session["created_by"]
    began = f"{age(session['created_at'])} ago"
    return session["session_id"], session["kind"], session["rank"], what[:80], whose, began, lasted, became
