"""`python -m tests.systems.rarely_polling ROLE`: a worker that polls every minute, which settings refuse.

What such a worker does soon is due to a message.
"""

import importlib
import sys
from dataclasses import replace

from celery import signals

from config.queues import NODE, node_name, worker_hostname
from config.settings import load_settings
from tasks.celery_app import run_worker

SECONDS = 60.0


def main(role: str) -> int:
    settings = load_settings()
    rarely = replace(
        settings,
        scheduler=replace(settings.scheduler, poll_seconds=SECONDS),
        node=replace(settings.node, poll_seconds=SECONDS),
    )
    module = importlib.import_module(f"tasks.{role}")
    hostname = worker_hostname(NODE, node_name(settings)) if role == NODE else module.own_hostname()
    app = module.make_app(rarely)

    def be_ordinary(**_: object) -> None:
        app.runtime.settings = settings  # the bootsteps have read theirs; supervisors are started with these

    signals.worker_ready.connect(be_ordinary)
    return run_worker(app, hostname=hostname, process=role)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
