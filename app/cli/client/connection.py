"""The connection of the client commands to a server; its errors become one line instead of a traceback."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click

from app.services.operations.data_dir import url_file
from config.settings import SettingsError, client_environment, load_settings
from trainyard.client import ApiError, Client, ClientError

DEFAULT_URL = "http://127.0.0.1:8000"


@contextmanager
def server(project: str = "") -> Iterator[Client]:
    """The server of TRAINYARD_URL and TRAINYARD_API_KEY, or the one that `trainyard up` runs on the data directory.

    ``project`` selects the project to act in, for a key with access to several.
    """
    try:
        yield connect(project)
    except ClientError as error:
        _print_json_error(error)
        raise click.ClickException(str(error)) from error


def _print_json_error(error: ClientError) -> None:
    """With ``--json``, prints the error as one JSON line on standard error and exits."""
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json"):
        return
    fields: dict[str, object] = {"code": "UNREACHABLE", "message": str(error)}
    if isinstance(error, ApiError):
        fields = {"status": error.status, "code": error.code, "message": error.message, "details": error.details}
    click.echo(json.dumps({"error": fields}), err=True)
    context.exit(1)


def connect(project: str = "") -> Client:
    url, key = address()
    try:
        return Client(url, key, project=project)
    except ValueError as error:
        raise click.ClickException(f"TRAINYARD_URL: {error}") from error


def address() -> tuple[str, str]:
    """URL and key: those of the environment, else those that `trainyard up` has written."""
    url, key = client_environment()
    if not (url and key):
        try:
            settings = load_settings()
        except SettingsError as error:
            raise click.ClickException(str(error)) from error
        written_url, written_key = (
            path.read_text().strip() if path.exists() else "" for path in (url_file(settings), settings.admin_key_file)
        )
        url = url or written_url or DEFAULT_URL
        key = key or written_key
    return url, key
