"""Flower on our broker: `python -m tasks.flower`; its password comes from the environment or a file, never from an
argument.
"""

import os
import sys

from celery import Celery
from flower import urls

from app.host.privacy import hide_from_same_user
from config.queues import celery_config
from config.settings import Settings, SettingsError, load_settings
from tasks.flower_login import limit_guesses
from tasks.flower_pages import JobPages, guarded


def main() -> None:
    hide_from_same_user()
    try:
        settings = load_settings()
        config = celery_config(settings)
        os.environ["FLOWER_BASIC_AUTH"] = login(settings)  # as an option it would be visible in the process list
    except SettingsError as error:
        sys.exit(str(error))
    urls.settings["template_loader"] = JobPages(urls.settings["template_path"])
    urls.handlers[:] = guarded(urls.handlers)
    limit_guesses()
    celery = Celery("trainyard")
    celery.conf.update(config)
    flower = settings.flower
    celery.start(["--quiet", "flower", f"--address={flower.host}", f"--port={flower.port}"])


def login(settings: Settings) -> str:
    """Flower's user and password. Raises SettingsError without one, because Flower would then allow everyone in."""
    if not settings.flower.password:
        raise SettingsError(
            ["Flower needs TRAINYARD_FLOWER_PASSWORD; `trainyard up` generates one in its data directory"]
        )
    return f"{settings.flower.user}:{settings.flower.password}"


if __name__ == "__main__":
    main()
