"""Runtimes that training jobs of OME name: stored by project, or for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.domain.errors import Conflict, NotFound
from app.domain.ids import new_id
from app.extensions import Database
from app.models import TrainingRuntime
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services import audit
from app.services.idempotency import Remember, forget

OF_THE_CLUSTER = ""  # the project of those that everybody may name


def find(session: Session, project: str, name: str) -> TrainingRuntime | None:
    return session.get(TrainingRuntime, (project, name))


def of(session: Session, project: str) -> Sequence[TrainingRuntime]:
    """By name."""
    return session.scalars(select(TrainingRuntime).filter_by(project=project).order_by(TrainingRuntime.name)).all()


def newest(session: Session, project: str) -> tuple[Any, ...]:
    """Changes whenever one of this project does."""
    query = select(func.max(TrainingRuntime.updated_at), func.count(), func.sum(TrainingRuntime.version))
    return tuple(session.execute(query.filter_by(project=project)).one())


def create(
    db: Database, caller: Caller, project: str, name: str, *, remember: Remember = forget, **parts: Mapping[str, Any]
) -> TrainingRuntime:
    """`parts`: spec, labels, annotations. Raises Conflict when there is one of that name.

    `remember` is called with the row before the transaction ends; what it raises takes everything back.
    """
    taken = Conflict(f"there is a runtime named {name} already")
    try:
        with db.write() as session:
            if find(session, project, name) is not None:
                raise taken
            row = TrainingRuntime(id=new_id("rt"), project=project, name=name, **parts)
            session.add(row)
            session.flush()
            _record(session, caller, "create", row)
            remember(session, row)
            return row
    except IntegrityError as error:
        raise taken from error


def change(
    db: Database, caller: Caller, project: str, name: str, *, expected: int | None, remember: Remember = forget,
    **parts: Mapping[str, Any],
) -> TrainingRuntime:  # fmt: skip
    """Replace its parts, as `create`. Raises NotFound, and Conflict when it is not of the version that was expected."""
    with db.write() as session:
        row = _require(session, project, name)
        if expected not in (None, row.version):
            raise Conflict("it was changed meanwhile; read it again")
        for part, value in parts.items():
            setattr(row, part, value)
        row.version += 1
        row.updated_at = utc_now()
        _record(session, caller, "change", row)
        remember(session, row)
        return row


def delete(db: Database, caller: Caller, project: str, name: str) -> None:
    """Jobs that named it keep what they took from it. Raises NotFound."""
    with db.write() as session:
        row = _require(session, project, name)
        _record(session, caller, "delete", row)
        session.delete(row)


def _require(session: Session, project: str, name: str) -> TrainingRuntime:
    row = session.get(TrainingRuntime, (project, name), with_for_update=True)
    if row is None:
        raise NotFound(f"no runtime {name[:64]}")
    return row


def _record(session: Session, caller: Caller, verb: str, row: TrainingRuntime) -> None:
    audit.record(
        session, actor=caller.actor, action=f"runtime.{verb}", project=row.project or None, data={"name": row.name}
    )  # fmt: skip
