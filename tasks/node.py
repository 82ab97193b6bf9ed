"""The node worker's process: `python -m tasks.node`, or `celery -A tasks.node worker -P threads`."""

import sys

from celery import Celery

from app.host.privacy import hide_from_same_user
from config.queues import NODE, node_name, node_options, worker_hostname
from config.settings import Settings, SettingsError, load_settings
from tasks import control, training
from tasks.celery_app import build_app, run_worker
from workers.node.worker_step import NodeStep

__all__ = ["control", "make_app", "training"]


def make_app(settings: Settings) -> Celery:
    """The step takes the inventory and registers the queues to consume."""
    celery = build_app(settings)
    celery.conf.update(node_options(settings))
    celery.steps["worker"].add(NodeStep)
    return celery


app = make_app(load_settings())


def main() -> int:
    hide_from_same_user()
    name = node_name(app.runtime.settings)
    try:
        return run_worker(app, hostname=worker_hostname(NODE, name), process=f"{NODE}-{name}")
    except SettingsError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
