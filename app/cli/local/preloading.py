"""What the processes of `trainyard up` import, by name: `up` imports it once and forks them, instead of each alone.

Nothing in here may start a thread, open a connection, or read what differs between these processes, as the environment.
"""

import gc
import importlib
import sys
from collections.abc import Iterable

# What the API, the workers and `up` itself import.
CORE = (
    "app.cli.local.node_drain",
    "app.services.operations.bootstrap",
    "app.services.operations.control_plane",
    "config.logging",
    "redis",
)
# What coordinator and node worker import besides, also what Celery imports late.
WORKERS = (
    "celery.backends.redis",
    "celery.concurrency.thread",
    "celery.events.receiver",
    "celery.worker.consumer",
    "celery.worker.loops",
    "celery.worker.pidbox",
    "kombu.transport.redis",
    "psutil",
    "tasks.admission",
    "tasks.background.coordination",
    "tasks.celery_app",
    "tasks.control",
    "tasks.training",
    "workers.node.worker_step",
)


def leave_script_directory() -> None:
    """Import like every process of ours: not from the directory of the script, nor from the working directory."""
    if not sys.flags.safe_path:
        del sys.path[0]


def preload(modules: Iterable[str]) -> None:
    gc.disable()  # imports leave little to collect, and every collection would look at all of it
    for name in modules:
        importlib.import_module(name)
    importlib.import_module("sqlalchemy.orm").configure_mappers()
    gc.freeze()  # or the first collection of each fork would copy what it shares with this process
    gc.enable()
