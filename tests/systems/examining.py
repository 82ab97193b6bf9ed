"""The doctor in tests: a deployment in which nothing runs, its checks one by one, and a source of heartbeats."""

import threading
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import update

from app.database.engine import Database
from app.models import Node, ProcessBeat
from app.models.base import utc_now
from app.services.nodes import registry
from app.services.operations import bootstrap
from app.services.operations.diagnosis.checks import CHECKS
from app.services.operations.diagnosis.findings import Finding
from app.services.operations.diagnosis.site import Site
from app.services.scheduling import planner
from config.settings import Settings, load_settings

BRIEFLY = 0.2


def prepared(folder: Path, database_url: str, redis_url: str) -> Settings:
    """A deployment in which nothing runs."""
    return bootstrap.prepare(
        load_settings(
            {
                "TRAINYARD_DATA_DIR": str(folder / "data"),
                "TRAINYARD_DATABASE_URL": database_url,
                "TRAINYARD_BROKER_URL": redis_url,
                "TRAINYARD_CACHE_MAX_BYTES": "1",
            }
        )
    )


def said(site: Site, name: str) -> list[Finding]:
    """What one check finds."""
    return next(check for check in CHECKS if check.name == name).run(site)


class Alive:
    """A coordinator and a node that beat as long as the block runs, and say that it is ``off`` later than it is."""

    def __init__(self, db: Database, off: timedelta = timedelta(0)) -> None:
        self._db = db
        self._off = off
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> None:
        self._introduce()  # before the first check, which sees no clock yet
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(0.05):
            if self._off:
                self._beat_at(utc_now() + self._off)
            else:
                self._introduce()

    def _introduce(self) -> None:
        planner.beat(self._db, "coordinator@here-1", "a:b:1:1")
        registry.heartbeat(self._db, "n1")

    def _beat_at(self, moment: datetime) -> None:
        """As a process with such a clock beats: a count and its time in one writing, so that no look finds another."""
        with self._db.write() as session:
            session.execute(update(ProcessBeat).values(counter=ProcessBeat.counter + 1, last_seen_at=moment))
            session.execute(update(Node).values(heartbeat=Node.heartbeat + 1, last_seen_at=moment))
