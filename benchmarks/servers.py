"""The servers and the environment that benchmarks of whole processes start with."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

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
