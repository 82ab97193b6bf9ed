"""The connection of the client commands to a server; its errors become one line instead of a traceback."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from app.cli.output import age
from app.host.imports import uncollected_imports
from config.environment import client_environment
from trainyard._client.http import LOOPBACK, base_url
from trainyard.client import AmbiguousHandle, ApiError, Client, ClientError, NoServer, RetryPolicy, Unauthenticated

FIRST_KEY_SECONDS = 10.0
_PATIENCE = RetryPolicy(retries_refused=False)  # people wait for the answer that no server runs
_LOCAL = "trainyard.local"  # of the contexts of a command
Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)


class ServerGroup(click.Group):
    """A group whose commands ask the server, and with `--local` an API of their own on the database."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        if not isinstance(cmd, click.Group) and not any(option.name == "local" for option in cmd.params):
            local_option(cmd)
        super().add_command(cmd, name)


def local_option(command: Command) -> Command:
    """``--local`` for a command; those of a ServerGroup have it anyway."""
    return click.option(
        "--local",
        is_flag=True,
        expose_value=False,
        callback=_note_local,
        help="Work on the database of TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL itself, without a server.",
    )(command)


def _note_local(context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 – click's signature
    context.meta[_LOCAL] = value


def is_local() -> bool:
    """Whether the current command was called with `--local`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_LOCAL))


@contextmanager
def server(project: str = "") -> Iterator[Client]:
    """The server of TRAINYARD_URL and TRAINYARD_API_KEY, or the one that `trainyard up` runs on the data directory.

    With `--local` an API that this process serves itself, on the database. ``project`` selects the project to act in,
    for a key with access to several.
    """
    try:
        if is_local():
            with uncollected_imports():
                from app.cli.own_api import own_api  # noqa: PLC0415 – slow to import, and only --local needs it

            with own_api() as (url, key):
                yield Client(url, key, project=project)
        else:
            yield connect(project)
    except ClientError as error:
        _print_json_error(error)
        raise click.ClickException(_explained(error)) from error


def _explained(error: ClientError) -> str:
    """The error, and the ways out that only a command line has."""
    if isinstance(error, AmbiguousHandle):
        jobs = [f"  {job.job_id}  {job.name}  {job.status}  {age(job.data['created_at'])}" for job in error.matches]
        return "\n".join([f"{error}:", *jobs, *(["  …"] if error.count > len(jobs) else [])])
    if isinstance(error, NoServer):
        context = click.get_current_context(silent=True)
        has_local = context is not None and any(option.name == "local" for option in context.command.params)
        on_the_machine = ", or use --local on the server's machine" if has_local else ""
        url = address()[0]
        said = str(error).replace(url, f"{url} ({_origin(_URL)})", 1)
        return f"{said}; start one with `trainyard up`, or name another with TRAINYARD_URL{on_the_machine}"
    if isinstance(error, Unauthenticated):
        url, key = address()
        if not key:
            return (
                f"no API key for {url}: set TRAINYARD_API_KEY, or start `trainyard up`, which writes a key for itself"
            )
        return f"{error}; the key is that of {_origin(_KEY)}, and the server {url} that of {_origin(_URL)}"
    return str(error)


_URL, _KEY = 0, 1  # in what `address` returns


def _origin(part: int) -> str:
    """Where the URL or the key of `address` comes from."""
    if client_environment()[part]:
        return ("TRAINYARD_URL", "TRAINYARD_API_KEY")[part]
    file = _of_data_directory()[0][part]
    return str(file) if file.exists() else "the default"


def _print_json_error(error: ClientError) -> None:
    """With ``--json``, prints the error as one JSON line on standard error and exits."""
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json"):
        return
    fields: dict[str, object] = {"code": "UNREACHABLE", "message": str(error)}
    if isinstance(error, AmbiguousHandle):
        fields = {"code": "AMBIGUOUS", "message": str(error), "job_ids": [job.job_id for job in error.matches]}
    elif isinstance(error, ApiError):
        fields = {"status": error.status, "code": error.code, "message": error.message, "details": error.details}
    click.echo(json.dumps({"error": fields}), err=True)
    context.exit(1)


def connect(project: str = "") -> Client:
    url, key = address()
    try:
        return Client(url, key, project=project, patience=_PATIENCE)
    except ValueError as error:
        raise click.ClickException(f"TRAINYARD_URL: {error}") from error


def address() -> tuple[str, str]:
    """URL and key: those of the environment, else those that `trainyard up` has written.

    A key that it has written is sent to this machine alone, not to whatever server the environment names.
    """
    url, key = client_environment()
    if not (url and key):
        files, port = _of_data_directory()
        if not (url or key):
            _wait_for_first_key(*files)
        written_url, written_key = (path.read_text().strip() if path.exists() else "" for path in files)
        url = url or written_url or f"http://127.0.0.1:{port}"
        is_here = base_url(url) == base_url(written_url) or urlsplit(url).hostname in LOOPBACK
        key = key or (written_key if is_here else "")
    return base_url(url), key


@cache  # an error asks for the address again
def _wait_for_first_key(url_file: Path, key_file: Path) -> None:
    """The first `trainyard up` on a directory writes its URL at once, and its key when the database is prepared."""
    until = time.monotonic() + FIRST_KEY_SECONDS
    while url_file.exists() and not key_file.exists() and time.monotonic() < until:
        time.sleep(0.05)


def _of_data_directory() -> tuple[tuple[Path, Path], int]:
    """The files to which `trainyard up` writes its URL and key, and the port that it takes otherwise."""
    # All settings take as long to import as the rest of a command, which needs none of them to help, or where the
    # environment names server and key.
    from app.services.operations.data_dir import url_file  # noqa: PLC0415
    from config.settings import SettingsError, load_settings  # noqa: PLC0415

    try:
        settings = load_settings()
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    return (url_file(settings), settings.admin_key_file), settings.api.port
