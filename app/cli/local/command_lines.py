"""Command line and environment of each Trainyard process, alone or under `trainyard up`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from config import metrics_directory
from config.queues import COORDINATOR, NODE, flower_command, worker_command
from config.settings import Settings

__all__ = [
    "COORDINATOR",
    "NODE",
    "api_command",
    "child_environment",
    "flower_command",
    "foreign_environment",
    "gateway_command",
    "tensorboard_command",
    "worker_command",
]

APP = "app.factory:from_environment()"
# For `up` alone: what is loaded late must be of the release that started, and files of other APIs are replaced while
# they run.
LATE_APP = "app.late_application:from_environment()"
WORKER = "app.server.gunicorn_worker.HeadFirstWorker"
# Requests finish within milliseconds, and clients resume streams over a new connection.
GRACEFUL_SECONDS = 3
PLAIN = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"})
HEARTBEAT_MEMORY = Path("/dev/shm")  # noqa: S108 – gunicorn's own advice: a heartbeat must not wait for a disk


def api_command(settings: Settings, *, bind: str, application: str = APP) -> list[str]:
    """Gunicorn with threads; ``bind`` is HOST:PORT, or fd://N for an open socket."""
    command = [sys.executable, "-m", "gunicorn", application, "--bind", bind, "--worker-class", WORKER]
    command += ["--workers", str(settings.api.workers), "--threads", str(settings.api.threads)]
    command += ["--graceful-timeout", str(GRACEFUL_SECONDS), "--no-control-socket", "--limit-request-line", "8190"]
    command += ["--config", "python:app.server.gunicorn_hooks", "--log-level", "warning"]
    command += ["--env", f"{metrics_directory.VARIABLE}={metrics_directory.multiprocess_directory(settings)}"]
    if os.access(HEARTBEAT_MEMORY, os.W_OK):
        command += ["--worker-tmp-dir", str(HEARTBEAT_MEMORY)]
    return command


def tensorboard_command(fd: int | None = None) -> list[str]:
    """TensorBoard on the open socket ``fd``, or on the configured address."""
    return [sys.executable, "-m", "app.tensorboard", *([] if fd is None else [str(fd)])]


def gateway_command(fd: int | None = None) -> list[str]:
    """The gateway on the open socket ``fd``, or on the configured address."""
    return [sys.executable, "-m", "app.gateway", *([] if fd is None else [str(fd)])]


def child_environment(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """The environment of a Trainyard process: the same settings in any working directory.

    Gunicorn puts its working directory on the import path, where a user's `config.py` would shadow ours; therefore
    no Trainyard process runs in the user's working directory.
    """
    ours = {
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "TRAINYARD_DATA_DIR": str(settings.data.dir),
        "TRAINYARD_STORAGE_ROOTS": ":".join(map(str, settings.storage.roots)),
    }
    if environ.get("TRAINYARD_DATABASE_URL"):
        ours["TRAINYARD_DATABASE_URL"] = _absolute_sqlite(settings.database.url)
    if settings.tensorboard.url:
        ours["TRAINYARD_TENSORBOARD_URL"] = settings.tensorboard.url
    if settings.web.url:
        ours["TRAINYARD_WEB_URL"] = settings.web.url
    if settings.gateway.url:
        ours["TRAINYARD_GATEWAY_URL"] = settings.gateway.url
    if settings.gateway.sessions_url:
        ours["TRAINYARD_GATEWAY_SESSIONS_URL"] = settings.gateway.sessions_url
    if settings.gateway.ports_url:
        ours["TRAINYARD_GATEWAY_PORTS_URL"] = settings.gateway.ports_url
    if settings.node.config is not None:
        ours["TRAINYARD_NODE_CONFIG"] = str(settings.node.config.absolute())
    if settings.node.name:
        ours["TRAINYARD_NODE_NAME"] = settings.node.name
    return {**environ, **ours}


def foreign_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a third-party program: no settings and no credentials, because it may expose them."""
    return {name: value for name, value in environ.items() if name in PLAIN}


def _absolute_sqlite(url: str) -> str:
    prefix = "sqlite:///"
    path = url.removeprefix(prefix)
    if path == url or path.startswith(("/", ":memory:")) or not path:
        return url
    return f"{prefix}{Path(path).absolute()}"
