"""Readiness of the platform to accept and run jobs: concurrent, brief checks of database, broker and coordinator."""

import threading
from collections.abc import Callable
from datetime import timedelta

import redis
from sqlalchemy import select, text

from app.database.engine import Database
from app.models import ProcessBeat
from app.models.base import utc_now

TIMEOUT_SECONDS = 0.9
_SOCKET_SECONDS = 0.6
# For display only; no decision depends on these clocks.
_BEAT_IS_FRESH = timedelta(seconds=10)

Check = Callable[[], str]


def failing_parts(db: Database, broker_url: str) -> dict[str, str]:
    """Component → problem; empty if all are available. Takes about a second at most, even if a component hangs."""
    checks: dict[str, Check] = {
        "database": lambda: _database(db),
        "broker": lambda: _broker(broker_url),
        "coordinator": lambda: _coordinator(db),
    }
    answers: dict[str, str] = {}
    threads = [
        threading.Thread(target=_run, args=(name, check, answers), daemon=True, name=f"ready-{name}")
        for name, check in checks.items()
    ]
    for thread in threads:
        thread.start()
    deadline = utc_now() + timedelta(seconds=TIMEOUT_SECONDS)
    for thread in threads:
        thread.join(max(0.0, (deadline - utc_now()).total_seconds()))
    silent = f"does not answer within {TIMEOUT_SECONDS:g} s"
    results = {name: answers.get(name, silent) for name in checks}
    return {name: problem for name, problem in results.items() if problem}


def _run(name: str, check: Check, answers: dict[str, str]) -> None:
    try:
        answers[name] = check()
    except Exception as error:  # noqa: BLE001 - any failure of a component is its result
        # The class name only: the message may contain the URL's password.
        answers[name] = f"cannot be reached ({type(error).__name__})"


def _database(db: Database) -> str:
    with db.read() as session:
        session.execute(text("SELECT 1"))
    return ""


def _broker(url: str) -> str:
    if not url:
        return "no TRAINYARD_BROKER_URL is configured"
    with redis.Redis.from_url(
        url, socket_timeout=_SOCKET_SECONDS, socket_connect_timeout=_SOCKET_SECONDS, retry=None
    ) as client:
        client.ping()
    return ""


def _coordinator(db: Database) -> str:
    with db.read() as session:
        newest = session.scalar(
            select(ProcessBeat.last_seen_at)
            .where(ProcessBeat.kind == "coordinator")
            .order_by(ProcessBeat.last_seen_at.desc())
            .limit(1)
        )
    if newest is None:
        return "none was ever started"
    age = utc_now() - newest
    return "" if abs(age) <= _BEAT_IS_FRESH else f"none was seen for {age.total_seconds():.0f} s"
