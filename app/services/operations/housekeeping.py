"""Periodic deletion of expired rows."""

from datetime import timedelta

from sqlalchemy import delete

from app.database.engine import Database
from app.models import IdempotentReply, ProcessBeat
from app.models.base import utc_now
from app.services.requests.idempotency import TTL

SILENT_COORDINATOR_HOURS = 24


def drop_old_replies(db: Database) -> None:
    """Delete expired replies of idempotent requests."""
    with db.write() as session:
        session.execute(delete(IdempotentReply).where(IdempotentReply.created_at < utc_now() - TTL))


def drop_dead_coordinators(db: Database) -> None:
    """Delete the heartbeats of coordinators that ended long ago."""
    with db.write() as session:
        cutoff = utc_now() - timedelta(hours=SILENT_COORDINATOR_HOURS)
        session.execute(delete(ProcessBeat).where(ProcessBeat.kind == "coordinator", ProcessBeat.last_seen_at < cutoff))
