"""Objects that clients of Kubernetes keep here, such as runtimes: stored by project, or for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound
from app.domain.ids import new_id
from app.models import BaseModel, TrainingRuntime
from app.models.base import utc_now
from app.models.insertion import fill
from app.security.permissions import Caller
from app.services.lifecycle import audit

OF_THE_CLUSTER = ""  # the project of those that everybody may name
Row = TypeVar("Row", TrainingRuntime, BaseModel)


class Manifests(Generic[Row]):
    """The objects of one table. ``noun`` begins their actions in the audit trail, ``prefix`` their ids."""

    def __init__(self, table: type[Row], *, noun: str, prefix: str) -> None:
        self._table: type[Row] = table
        self._noun, self._prefix = noun, prefix

    def find(self, session: Session, project: str, name: str) -> Row | None:
        return session.get(self._table, (project, name))

    def of(self, session: Session, project: str) -> Sequence[Row]:
        """By name."""
        return session.scalars(select(self._table).filter_by(project=project).order_by(self._table.name)).all()

    def newest(self, session: Session, project: str) -> tuple[Any, ...]:
        """Changes whenever one of this project does."""
        table = self._table
        query = select(func.max(table.updated_at), func.count(), func.sum(table.version))
        return tuple(session.execute(query.filter_by(project=project)).one())

    def create(
        self, db: Database, caller: Caller, project: str, name: str, *, dry_run: bool = False,
        **parts: Mapping[str, Any],
    ) -> Row:  # fmt: skip
        """`parts`: spec, labels, annotations. With ``dry_run`` the row is checked, returned and not written.

        Raises Conflict when there is one of that name.
        """
        taken = Conflict(f"there is a {self._noun} named {name} already")
        try:
            with db.write() as session:
                if self.find(session, project, name) is not None:
                    raise taken
                row = self._table(id=new_id(self._prefix), project=project, name=name, **parts)
                if dry_run:
                    fill(row)
                    return row
                session.add(row)
                session.flush()
                self._record(session, caller, "create", row)
                return row
        except IntegrityError as error:
            raise taken from error

    def change(
        self, db: Database, caller: Caller, project: str, name: str, *, expected: int | None,
        dry_run: bool = False, **parts: Mapping[str, Any],
    ) -> Row:  # fmt: skip
        """Replace its parts, as `create`. Raises NotFound, and Conflict when it is not of the expected version."""
        with db.write() as session:
            row = self._require(session, project, name)
            if expected not in (None, row.version):
                raise Conflict("it was changed meanwhile; read it again")
            if dry_run:
                session.expunge(row)  # changed below, and not written
            for part, value in parts.items():
                setattr(row, part, value)
            row.version += 1
            row.updated_at = utc_now()
            if not dry_run:
                self._record(session, caller, "change", row)
            return row

    def delete(self, db: Database, caller: Caller, project: str, name: str) -> None:
        """Jobs that named it keep what they took from it. Raises NotFound."""
        with db.write() as session:
            row = self._require(session, project, name)
            self._record(session, caller, "delete", row)
            session.delete(row)

    def _require(self, session: Session, project: str, name: str) -> Row:
        row = session.get(self._table, (project, name), with_for_update=True)
        if row is None:
            raise NotFound(f"no {self._noun} {name[:64]}")
        return row

    def _record(self, session: Session, caller: Caller, verb: str, row: Row) -> None:
        audit.record(
            session, actor=caller.actor, action=f"{self._noun}.{verb}", project=row.project or None,
            data={"name": row.name},
        )  # fmt: skip


RUNTIMES = Manifests(TrainingRuntime, noun="runtime", prefix="rt")
BASE_MODELS = Manifests(BaseModel, noun="base_model", prefix="bm")
