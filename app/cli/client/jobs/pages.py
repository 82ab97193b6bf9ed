"""`trainyard open`: a job's TensorBoard in the browser."""

import webbrowser

import click

from app.cli.connection import server
from app.cli.handles import job_argument, job_id_of


@click.command("open")
@job_argument
@click.option("--print", "prints", is_flag=True, help="Print the address instead; it is valid for one day.")
def open_job(*, handle: str, prints: bool) -> None:
    """Open JOB's TensorBoard in the browser."""
    with server() as client:
        board = client.tensorboard(job_id_of(client, handle))
    address = f"{board['url']}?token={board['token']}"
    if prints:
        click.echo(address)
    elif not webbrowser.open(address):
        raise click.ClickException(f"there is no browser here; open {address}")
