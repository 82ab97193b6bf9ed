"""Objects that Kubernetes clients store, such as training runtimes: per project or cluster-scoped."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound
from app.domain.ids import new_id
from app.models import StoredBaseModel, TrainingRuntime
from app.models.base import utc_now
from app.models.insertion import fill
from app.security.permissions import Caller
from app.services.lifecycle import audit

CLUSTER_SCOPE = ""  # the project of cluster-scoped manifests
Row = TypeVar("Row", TrainingRuntime, StoredBaseModel)


class KubernetesObjectStore(Generic[Row]):
    """The manifests of one table. ``noun`` prefixes their audit actions, ``prefix`` their ids."""

    def __init__(self, table: type[Row], *, noun: str, prefix: str) -> None:
        self._table: type[Row] = table
        self._noun, self._prefix = noun, prefix

    def find(self, session: Session, project: str, name: str) -> Row | None:
        return session.get(self._table, (project, name))

    def of(self, session: Session, project: str) -> Sequence[Row]:
        """The manifests of a project, sorted by name."""
        return session.scalars(select(self._table).filter_by(project=project).order_by(self._table.name)).all()

    def newest(self, session: Session, project: str) -> tuple[object, ...]:
        """A value that changes whenever a manifest of the project changes."""
        table = self._table
        query = select(func.max(table.updated_at), func.count(), func.sum(table.version))
        return tuple(session.execute(query.filter_by(project=project)).one())

    def create(
        self,
        db: Database,
        caller: Caller,
        project: str,
        name: str,
        *,
        dry_run: bool = False,
        **parts: Mapping[str, Any],
    ) -> Row:
        """Store a manifest; `parts` are spec, labels, annotations. Raises Conflict if the name exists.

        With ``dry_run`` the row is checked and returned, not written.
        """
        taken = Conflict(f"a {self._noun} named {name} already exists")
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
        self,
        db: Database,
        caller: Caller,
        project: str,
        name: str,
        *,
        expected: int | None,
        dry_run: bool = False,
        **parts: Mapping[str, Any],
    ) -> Row:
        """Replace its parts, as in `create`. Raises NotFound, and Conflict if the version differs from the expected."""
        with db.write() as session:
            row = self._require(session, project, name)
            if expected not in (None, row.version):
                raise Conflict("it was changed concurrently; read it again")
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
        """Delete a manifest; jobs created from it are unaffected. Raises NotFound."""
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
            session,
            actor=caller.actor,
            action=f"{self._noun}.{verb}",
            project=row.project or None,
            data={"name": row.name},
        )


RUNTIMES = KubernetesObjectStore(TrainingRuntime, noun="runtime", prefix="rt")
BASE_MODELS = KubernetesObjectStore(StoredBaseModel, noun="base_model", prefix="bm")
