"""Single processes: `trainyard api`, `coordinator`, `node`, `gateway` and `tensorboard` exec the process."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

from app.cli.database import cli_settings, failures_as_messages
from app.cli.local.command_lines import (
    COORDINATOR,
    NODE,
    api_command,
    child_environment,
    gateway_command,
    tensorboard_command,
    worker_command,
)
from app.services.operations.data_dir import read_roots
from config.queues import broker_url
from config.settings import Settings, SettingsError
from config.values import rules as value_rules


def node_name_option(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """Validates --name like the setting. Raises BadParameter."""
    try:
        value_rules.node_name(name or "")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return name


@click.command()
@click.option("--host", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [8000]")
def api(host: str | None, port: int | None) -> None:
    """Run the API alone. Creates the schema and the admin key if they are missing."""
    from app.services.operations.bootstrap import prepare

    settings = _settings()
    changed = replace(settings.api, host=host or settings.api.host, port=port or settings.api.port)
    with failures_as_messages():
        settings = replace(prepare(settings), api=changed)
    address = f"[{changed.host}]" if ":" in changed.host else changed.host
    click.echo(f"API on http://{address}:{changed.port}")
    _become(api_command(settings, bind=f"{address}:{changed.port}"), settings)


@click.command()
def coordinator() -> None:
    """Run a coordinator alone; several may run at a time."""
    settings = _settings()
    _wait_for_schema(settings)
    _become(worker_command(COORDINATOR), settings)


@click.command()
@click.option("--name", callback=node_name_option, help="The node's name.  [host name]")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="node.toml with labels, capabilities, limits and declared devices.",
)
def node(name: str | None, config: Path | None) -> None:
    """Run the node worker of this machine alone."""
    settings = _settings()
    changed = replace(settings.node, name=name or settings.node.name, config=config or settings.node.config)
    settings = replace(settings, node=changed)
    _wait_for_schema(settings)
    _become(worker_command(NODE), settings)


@click.command()
@click.option("--host", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [8001]")
def gateway(host: str | None, port: int | None) -> None:
    """Run a gateway alone; several may run at a time. The API reaches one at TRAINYARD_GATEWAY_URL."""
    settings = _settings()
    given = {"TRAINYARD_GATEWAY_HOST": host, "TRAINYARD_GATEWAY_PORT": port and str(port)}
    os.environ.update({name: value for name, value in given.items() if value})
    _wait_for_schema(settings)
    _become(gateway_command(), settings)


@click.command()
@click.option("--host", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [5556]")
def tensorboard(host: str | None, port: int | None) -> None:
    """Run TensorBoard for all jobs alone; job responses link to it if TRAINYARD_TENSORBOARD_URL is set."""
    settings = cli_settings()
    if find_spec("tensorboard") is None:
        raise click.ClickException("TensorBoard is not installed here; it comes with trainyard[train]")
    given = {"TRAINYARD_TENSORBOARD_HOST": host, "TRAINYARD_TENSORBOARD_PORT": port and str(port)}
    os.environ.update({name: value for name, value in given.items() if value})
    _become(tensorboard_command(), settings)


def _settings() -> Settings:
    """The settings. Raises ClickException without a broker URL; the broker itself may be unavailable."""
    settings = cli_settings()
    try:
        broker_url(settings)
    except SettingsError as error:
        raise click.ClickException(error.problems[0]) from error
    return settings


def _wait_for_schema(settings: Settings) -> None:
    """Wait for the schema; only `api` and `db` migrate it, because these processes may start on many machines."""
    from app.database.from_settings import open_database
    from app.migrations.versioning import wait_until_current

    with failures_as_messages():
        db = open_database(settings.database)
        wait_until_current(db.engine)
        db.close()


def _become(command: Sequence[str], settings: Settings) -> NoReturn:
    if not settings.storage.roots:
        settings = replace(settings, storage=replace(settings.storage, roots=read_roots(settings)))
    environment = child_environment(os.environ, settings)
    run_dir = settings.data.dir / "run"
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.chdir(run_dir)
    sys.stdout.flush()
    os.execve(command[0], list(command), environment)  # noqa: S606 – becoming that process is the purpose
