"""What the processes of `trainyard up` import, by name: `up` imports it once and forks them, instead of each alone.

Nothing in here may start a thread, open a connection, or read what differs between these processes, as the environment.
"""

import gc
import importlib
import sys
from collections.abc import Iterable

# What `up` itself imports, and what at least two of API, gateway and coordinator do: each would compute and keep it for
# itself. None of it may import prometheus_client, which reads at once where the API's processes keep their counters.
CORE = (
    "app.cli.local.node_drain",
    "app.services.operations.bootstrap",
    "app.services.operations.control_plane",
    "config.logging",
    "redis",
    # of API and gateway
    "app.compat.openai.answers.messages",
    "app.http.auth",
    "app.http.errors",
    "app.http.idempotency",
    "app.schemas.jobs",
    "app.services.interactive.ports",
    "app.services.interactive.recordings",
    "app.services.serving.endpoints",
    "app.services.serving.usage",
    # of API and coordinator
    "app.services.batches.announcing",
    "app.services.batches.creation",
    "app.services.files.creation",
    "app.services.files.expiry",
    "app.services.inference.listing",
    "app.services.interactive.attending",
    "app.services.jobs.control.commands",
    "app.services.jobs.deletion",
    "app.services.jobs.dry_run",
    "app.services.jobs.listing",
    "app.services.jobs.reports",
    "app.services.jobs.updates",
    "app.services.model_registry.fine_tunes",
    "app.services.nodes.listing",
    "app.services.preflight.admission",
    "app.services.preflight.gradings",
    "app.services.requests.wakeups",
    "app.services.scheduling.planner",
    "app.services.serving.creation",
    "app.services.serving.fleet",
    "app.services.sweeps.stepping",
    "app.services.webhooks.deliveries",
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
