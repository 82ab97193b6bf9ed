"""The servers and the environment that benchmarks of whole processes start with."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path

from app.cli.local.command_lines import APP, api_command
from config.settings import Settings
from tests.systems.servers import PostgresServer, RedisServer

START_SECONDS = 60.0


def started_broker(stack: ExitStack) -> RedisServer:
    """A Redis that is closed with the stack."""
    broker = RedisServer()
    stack.callback(broker.close)
    broker.start()
    return broker


def databases(kind: str, folder: Path, stack: ExitStack, names: tuple[str, ...]) -> list[str]:
    """URLs of empty databases, ``sqlite`` or ``postgresql``, all on the same disk or server."""
    if kind == "sqlite":
        return [f"sqlite:///{folder}/{name}.db" for name in names]
    server = PostgresServer()
    stack.callback(server.close)
    server.start()
    for name in names:
        server.execute(f"CREATE DATABASE {name}")
    return [server.url(name) for name in names]


def environment(folder: Path, database_url: str, broker_url: str) -> dict[str, str]:
    """What configures Trainyard on them, with its data in the folder."""
    return {
        "TRAINYARD_DATA_DIR": str(folder / "data"),
        "TRAINYARD_DATABASE_URL": database_url,
        "TRAINYARD_BROKER_URL": broker_url,
        "TRAINYARD_STORAGE_ROOTS": "/srv",
    }


def plain_environment() -> dict[str, str]:
    """Ours without what configures Trainyard here."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], port: int) -> Iterator[None]:
    """A server that answers on the port; ended at the end."""
    process = subprocess.Popen(command, env=environment, cwd=tempfile.gettempdir())
    try:
        wait_until_it_answers(process, port)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def bare_route(
    module: str, settings: Settings, variables: Mapping[str, str], port: int
) -> AbstractContextManager[None]:
    """The application that ``module.make_app`` makes, in the server of the API with its number of threads."""
    command = [
        f"{module}:make_app()" if word == APP else word for word in api_command(settings, bind=f"127.0.0.1:{port}")
    ]
    at_home = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
    return running(command, {**plain_environment(), **variables, **at_home}, port)


def wait_until_it_answers(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Until a server is healthy; ends the benchmark when it is not in time."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
        except urllib.error.HTTPError as answer:
            if answer.code == HTTPStatus.NOT_FOUND:
                return  # the bare route has no such page, but it answers
            time.sleep(0.05)
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit("a server of the benchmark did not start")
