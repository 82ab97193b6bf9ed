"""The deployment under diagnosis: its settings, and shared connections, opened lazily and once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import redis

from app.database.engine import Database
from app.database.from_settings import open_database
from app.services.operations.diagnosis.pulses import Pulse, observe
from app.storage.storage import Storage
from config.settings import Settings

# Heartbeats are due every two seconds; one may be late.
PATIENCE_SECONDS = 6.0
BROKER_SECONDS = 3.0


@dataclass(frozen=True)
class Site:
    settings: Settings
    open_database: Callable[[], Database]
    patience_seconds: float = PATIENCE_SECONDS

    @property
    def db(self) -> Database:
        return self.open_database()

    @cached_property
    def storage(self) -> Storage:
        return Storage(self.settings.storage.url)

    @cached_property
    def pulses(self) -> list[Pulse]:
        """Coordinators and nodes with their observed liveness."""
        return observe(self.db, self.patience_seconds)

    @contextmanager
    def broker(self) -> Iterator["redis.Redis"]:
        with redis.Redis.from_url(
            self.settings.broker.url,
            socket_timeout=BROKER_SECONDS,
            socket_connect_timeout=BROKER_SECONDS,
            retry=None,
            decode_responses=True,
        ) as client:
            yield client


@contextmanager
def open_site(settings: Settings, *, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Site]:
    """A site whose connections open on first use: opening SQLite eagerly would create its directory."""
    made: list[Database] = []

    @cache
    def once() -> Database:
        made.append(open_database(settings.database))
        return made[0]

    try:
        yield Site(settings, once, patience_seconds)
    finally:
        for db in made:
            db.close()
