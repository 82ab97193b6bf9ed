"""`trainyard up`: runs the whole platform on this machine, in the foreground."""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import click

from app.cli.local import signals
from app.cli.local.embedded_redis import NoRedisProgram, is_free
from app.cli.local.local_platform import LocalPlatform, NotPrepared
from app.cli.local.sandbox import ensure_sandbox, no_sandbox_message, no_sandbox_option
from app.cli.local.simulated_nodes import SimulatedNode, simulate_option, write_node_configs
from app.domain.nodes.sandboxes import LANDLOCK, PROCESS
from app.services.operations.data_dir import prepare_directory, write_sandbox
from config.node import NodeSettings
from config.settings import Settings, SettingsError, TensorboardSettings, load_settings, own_sqlite

# After kill -9 of a previous `up` the kernel ends its children soon, but perhaps after this start.
BIND_TIMEOUT_SECONDS = 3.0


@click.command()
@click.option("--host", help="Address the API listens on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the API; 0 takes a free one.  [8000]")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Directory of all data.")
@click.option("--no-flower", is_flag=True, help="Do not start Flower.")
@click.option("--flower-port", type=click.IntRange(1, 65535), help="Port of Flower.  [5555]")
@click.option("--no-tensorboard", is_flag=True, help="Do not start TensorBoard.")
@no_sandbox_option
@simulate_option
def up(  # noqa: PLR0913, PLR0917  one for each option
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    no_flower: bool,  # noqa: FBT001
    flower_port: int | None,
    no_tensorboard: bool,  # noqa: FBT001
    no_sandbox: bool,  # noqa: FBT001
    simulated: Sequence[SimulatedNode],
) -> None:
    """Run the whole platform on this machine; Ctrl-C stops it.

    Running jobs are saved when it stops and continue at the next start. --simulate h100:4 --simulate a100:2 creates
    simulated nodes, h100-1 and a100-1, to try scheduling: their jobs really run, on this machine's CPU.
    """
    signals.block()
    environment = {
        "TRAINYARD_API_HOST": host,
        "TRAINYARD_API_PORT": port,
        "TRAINYARD_DATA_DIR": data_dir and data_dir.absolute(),
        "TRAINYARD_FLOWER_PORT": flower_port,
        "TRAINYARD_NODE_SANDBOX": PROCESS if no_sandbox else None,
    }
    settings = _settings(environment)
    try:
        settings = prepare_directory(settings)
        with _only_one(settings.data.dir), _listening(settings.api.host, settings.api.port) as listener:
            if not no_flower:
                _require_free_port(settings)
            _settle_sandbox(settings, without=no_sandbox)
            nodes = write_node_configs(simulated, settings.data.dir / "run") or [settings.node]
            _run(settings, listener, nodes, with_flower=not no_flower, with_boards=not no_tensorboard)
    except NotPrepared as error:
        raise click.ClickException(f"could not prepare the database: {error}") from error
    except (NoRedisProgram, OSError) as error:
        raise click.ClickException(str(error)) from error


def _run(
    settings: Settings, listener: socket.socket, nodes: Sequence[NodeSettings], *, with_flower: bool, with_boards: bool
) -> None:
    with (
        _boards_listening(settings.tensorboard, is_wanted=with_boards) as boards,
        _loopback(settings.gateway.port) as gateway,
    ):
        LocalPlatform(
            settings, listener, nodes=nodes, with_flower=with_flower, tensorboard=boards, gateway=gateway
        ).run()


def _require_free_port(settings: Settings) -> None:
    if not is_free(settings.flower.host, settings.flower.port):
        raise click.ClickException(
            f"port {settings.flower.port} for Flower is in use: change it with --flower-port, or --no-flower"
        )


def _settings(options: Mapping[str, object]) -> Settings:
    """The settings with the given options applied.

    Jobs may read from the working directory unless roots are configured.
    """
    os.environ.update({name: str(value) for name, value in options.items() if value is not None})
    try:
        settings = load_settings()
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    if not os.environ.get("TRAINYARD_DATABASE_URL"):
        # As for the broker, each start decides on its database: nothing is taken over from the previous one.
        settings = replace(settings, database=replace(settings.database, url=own_sqlite(settings.data.dir)))
    if "TRAINYARD_STORAGE_ROOTS" not in os.environ:
        settings = replace(settings, storage=replace(settings.storage, roots=(Path.cwd(),)))
    return replace(settings, node=replace(settings.node, name="local"))


def _settle_sandbox(settings: Settings, *, without: bool) -> None:
    write_sandbox(settings, without=without)
    if settings.node.sandbox == PROCESS:
        click.echo("Jobs run without a sandbox, with all permissions of this user.")
    elif settings.node.sandbox != LANDLOCK and (lack := ensure_sandbox(click.echo)) is not None:
        click.echo(no_sandbox_message(lack))


@contextlib.contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    with (data_dir / "run" / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise click.ClickException(
                f"`trainyard up` already runs on {data_dir} (process {holder}); "
                "stop it, or choose another directory with --data-dir"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextlib.contextmanager
def _boards_listening(wanted: TensorboardSettings, *, is_wanted: bool) -> Iterator[socket.socket | None]:
    """TensorBoard's socket, on any free port if its own is in use; None if it is disabled or not installed."""
    if not is_wanted or find_spec("tensorboard") is None:
        yield None
        return
    with socket.socket(socket.AF_INET6 if ":" in wanted.host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((wanted.host, wanted.port))
        except OSError:
            listener.bind((wanted.host, 0))
        listener.listen(128)
        yield listener


@contextlib.contextmanager
def _loopback(port: int) -> Iterator[socket.socket]:
    """The gateway's socket: on loopback, because others reach it through the API.

    It takes any free port if its own is in use, which changes the addresses of ports of jobs.
    """
    try:
        listener = socket.create_server(("127.0.0.1", port), backlog=512)
    except OSError:
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    with listener:
        yield listener


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """The API's listening socket, owned by `up`: requests queue instead of failing while the API restarts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + BIND_TIMEOUT_SECONDS
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind((host, port))
                break
            except OSError as error:
                if time.monotonic() > deadline or signals.wait(0.1):
                    raise click.ClickException(
                        f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port or --host"
                    ) from error
        listener.listen(512)
        yield listener
