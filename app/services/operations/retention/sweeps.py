"""Retention of sweeps: an ended one is deleted as its owner could, with its trials' records.

Jobs stay, and have rules of their own. What later sweeps know from it they have copied when they were created.
"""

from sqlalchemy import select

from app.domain.errors import IllegalTransition, NotFound
from app.domain.sweeps.states import TERMINAL
from app.models import Sweep
from app.services.operations.retention.context import RETENTION, Pruned, RetentionContext
from app.services.sweeps import commands


def sweeps(context: RetentionContext) -> Pruned:
    """Each in a transaction of its own, with an entry in the audit trail, from which answers say that it is gone."""
    old = Sweep.finished_at < context.before(context.settings.sweeps_days)
    query = select(Sweep.id).where(Sweep.status.in_(TERMINAL), old).order_by(Sweep.finished_at, Sweep.id)
    with context.plane.db.read() as session:
        ids = session.scalars(query).all()
    return Pruned(count=sum(context.dry_run or _delete(context, sweep_id) for sweep_id in ids))


def _delete(context: RetentionContext, sweep_id: str) -> bool:
    try:
        commands.delete(context.plane, RETENTION, sweep_id)
    except (IllegalTransition, NotFound):
        return False  # its budget was raised, or it was deleted, meanwhile
    return True
