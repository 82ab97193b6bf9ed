"""`trainyard data push`: uploads a file or a directory, and prints the reference that documents take."""

import hashlib
from pathlib import Path

import click

from app.cli.client.code import known_file, packed
from app.cli.client.submit import project_option
from app.cli.connection import server
from app.cli.output import json_option, print_json
from app.domain.files.purposes import DIRECTORY, USER_DATA
from app.domain.spec.locations.uploads import SCHEME
from trainyard.client import Client


@click.group()
def data() -> None:
    """Upload data, models and code that documents then name as upload://file-…."""


@data.command()
@click.argument("place", metavar="FILE|DIR", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--expires-hours",
    type=click.IntRange(1, 720),
    help="Delete it after so many hours; without, it stays until `trainyard files rm`.",
)
@project_option
@json_option
def push(place: Path, expires_hours: int | None, project: str, as_json: bool) -> None:  # noqa: FBT001
    """Upload FILE, or DIR as a directory that a job finds unpacked, and print upload://file-….

    The reference is a source's path, base_model.model_id (a directory) or custom_code_dir (a directory). Content that
    the server has is not sent again.
    """
    seconds = expires_hours * 3600 if expires_hours else None
    with server(project) as client:
        if place.is_dir():
            with packed(place, is_code=False) as bundle:
                file_id, is_new = _stored(client, bundle.archive, bundle.sha256, DIRECTORY, seconds)
        else:
            with place.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file_id, is_new = _stored(client, place, sha256, USER_DATA, seconds)
    reference = f"{SCHEME}{file_id}"
    if as_json:
        print_json({"reference": reference, "id": file_id, "uploaded": is_new})
        return
    click.echo(reference)
    if not is_new:
        click.echo("The server had this content; nothing was sent.", err=True)


def _stored(client: Client, path: Path, sha256: str, purpose: str, expires_seconds: int | None) -> tuple[str, bool]:
    """(id, whether it was sent). With an expiry of its own it is always sent."""
    if expires_seconds is None and (known := known_file(client, sha256, purpose, for_good=True)):
        return known, False
    return client.files.put(path, purpose, expires_seconds=expires_seconds)["id"], True
