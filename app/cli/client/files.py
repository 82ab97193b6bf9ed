"""`trainyard files`: uploads data, and lists, downloads and deletes it, over HTTP."""

import sys
from itertools import islice
from pathlib import Path

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.submit import project_option
from app.cli.connection import server
from app.cli.output import json_option, print_fields, print_json, print_table, unix_time
from app.domain.spec.locations.uploads import SCHEME
from trainyard.client import Client
from trainyard.records import StoredFile

PURPOSES = ("fine-tune", "batch", "evals", "user_data", "directory")
_COLUMNS = ("id", "name", "bytes", "purpose", "status", "created", "expires")


def _id(_context: click.Context, _parameter: click.Parameter, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Ids, also in the form that `data push` prints: upload://file-…."""
    return value.removeprefix(SCHEME) if isinstance(value, str) else tuple(each.removeprefix(SCHEME) for each in value)


@click.group()
def files() -> None:
    """Upload data, and list, download and delete it. A job names a file by its id, as in "path": "file-…"."""


@files.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--purpose",
    type=SuggestingChoice(PURPOSES),
    default="fine-tune",
    show_default=True,
    help="What it is for; the content of fine-tune and batch files is inspected.",
)
@click.option(
    "--expires-hours", type=click.IntRange(1, 720), help="Delete it after so many hours; without, it stays until rm."
)
@click.option("--wait", "waits", is_flag=True, help="Wait until it is inspected; exit code 1 if it has errors.")
@project_option
@json_option
def put(*, file: Path, purpose: str, expires_hours: int | None, waits: bool, project: str, as_json: bool) -> None:
    """Upload FILE and print its id. Over 64 MiB it is sent in parts."""
    with server(project) as client:
        seconds = expires_hours * 3600 if expires_hours else None
        stored = client.files.put(file, purpose, expires_seconds=seconds)
        if waits:
            stored = client.files.wait(stored["id"])
    if as_json:
        print_json(stored)
    else:
        click.echo(stored["id"])
    if waits and stored["status"] == "error":
        click.echo(f"Error: {stored['status_details']}", err=True)
        sys.exit(1)


@files.command(name="list")
@click.option("--purpose", default="", help="Only files of this purpose.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many, newest first.")
@project_option
@json_option
def list_files(purpose: str, limit: int, project: str, as_json: bool) -> None:  # noqa: FBT001
    """List files, newest first."""
    with server(project) as client:
        found = list(islice(client.files.list(purpose=purpose), limit))
    if as_json:
        print_json(found)
        return
    print_table(_COLUMNS, map(_row, found), empty="no files")


@files.command()
@click.argument("file_id", callback=_id)
@click.option("--out", help="Where to save it; - writes to standard output.  [default: its name, here]")
@click.option("--info", "is_info", is_flag=True, help="Show its status and errors instead.")
@project_option
@json_option
def get(*, file_id: str, out: str | None, is_info: bool, project: str, as_json: bool) -> None:
    """Download the file FILE_ID. A broken download is resumed by the next one."""
    with server(project) as client:
        if out == "-" and not is_info:
            for piece in client.files.content(file_id):
                sys.stdout.buffer.write(piece)
            return
        stored = client.files.get(file_id)
        saved = None if is_info else _save(client, stored, out)
    if as_json:
        print_json({**stored, **({"path": str(saved)} if saved else {})})
    elif saved:
        click.echo(saved)
    else:
        print_fields(dict(zip(_COLUMNS, _row(stored), strict=True)) | {"errors": stored["status_details"]})


@files.command()
@click.argument("file_ids", nargs=-1, required=True, metavar="FILE_ID…", callback=_id)
@project_option
@json_option
def rm(file_ids: tuple[str, ...], project: str, as_json: bool) -> None:  # noqa: FBT001
    """Delete files. One that a job needs is refused until the job has ended."""
    with server(project) as client:
        for file_id in file_ids:
            client.files.delete(file_id)
            if not as_json:
                click.echo(f"{file_id} deleted")
    if as_json:
        print_json([{"id": file_id, "deleted": True} for file_id in file_ids])


def _save(client: Client, stored: StoredFile, out: str | None) -> Path:
    """Raises ClickException for a file that is there already."""
    name = Path(stored["filename"]).name  # the server's names are no paths here
    to = Path(out or name or stored["id"])
    if to.is_dir():
        to = to / (name or stored["id"])
    if to.exists():
        raise click.ClickException(f"{to} exists; choose another with --out")
    try:
        return client.files.download(stored["id"], to)
    except OSError as error:
        raise click.ClickException(f"cannot save {to}: {error.strerror}") from error


def _row(file: StoredFile) -> tuple[object, ...]:
    return (
        file["id"],
        file["filename"],
        file["bytes"],
        file["purpose"],
        file["status"],
        unix_time(file["created_at"]),
        unix_time(file.get("expires_at")),
    )
