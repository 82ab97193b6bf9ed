"""`trainyard open`: the dashboard, a job's TensorBoard, or one of its ports, in the browser."""

import webbrowser

import click

from app.cli.client.interactive.ports import address_of_port
from app.cli.connection import address, server
from app.cli.handles import JobHandle, job_id_of
from app.domain.lifecycle.states import RUNNING
from trainyard.client import Client, Job


@click.command("open")
@click.argument("handle", required=False, type=JobHandle(), metavar="[JOB]")
@click.option("--tensorboard", "with_boards", is_flag=True, help="JOB's TensorBoard; its address is valid for one day.")
@click.option("--port", "port", default="", metavar="NAME", help="A port of JOB; its address expires after some hours.")
@click.option("--print", "prints", is_flag=True, help="Print the address instead.")
def open_page(*, handle: str | None, with_boards: bool, port: str, prints: bool) -> None:
    """Open the dashboard in the browser, at JOB or at its overview. The browser asks for the key once."""
    if (with_boards or port) and handle is None:
        raise click.UsageError(f"{'--port' if port else '--tensorboard'} needs a JOB")
    if with_boards and port:
        raise click.UsageError("--tensorboard and --port exclude each other")
    with server() as client:
        job_id = job_id_of(client, handle) if handle is not None else ""
        if port:
            url = address_of_port(client, job_id, port)
            _warn_if_it_waits(client.get(job_id))
        else:
            url = _board(client, job_id) if with_boards else f"{address()[0].rstrip('/')}/ui/{_page(job_id)}"
    if prints:
        click.echo(url)
    elif not webbrowser.open(url):
        click.echo(url)
        click.echo("There is no browser here; open the address yourself.", err=True)


def _warn_if_it_waits(job: Job) -> None:
    if job.status not in RUNNING:
        leads = "its ports are gone" if job.is_terminal else "the address answers once it does"
        click.echo(f"{job.job_id} is {job.status} and does not run; {leads}", err=True)


def _page(job_id: str) -> str:
    return f"jobs/{job_id}" if job_id else ""


def _board(client: Client, job_id: str) -> str:
    board = client.tensorboard(job_id)
    return f"{board['url']}?token={board['token']}"
