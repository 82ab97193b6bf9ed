"""Flower on our broker: `python -m tasks.flower`; its password comes by environment, never by argument."""

from celery import Celery

from config.queues import celery_config
from config.settings import load_settings

HOST = "127.0.0.1"  # whoever wants it elsewhere puts a proxy with TLS before it


def main() -> None:
    settings = load_settings()
    celery = Celery("trainyard")
    celery.conf.update(celery_config(settings))
    celery.start(["--quiet", "flower", f"--address={HOST}", f"--port={settings.flower.port}"])


if __name__ == "__main__":
    main()
