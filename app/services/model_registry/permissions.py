"""Permissions of other projects to ask a fine-tuned model, or one checkpoint of it: granted by super admins.

A permission lets requests of the other project be answered by services of the model's own project. It gives no sight of
the job, its files and its services, and no right to train, download or evaluate the model.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, Conflict, InvalidRequest, NotFound
from app.domain.ids import PERMISSION_ID, new_id
from app.domain.model_names import checkpoint_name, parsed
from app.models import ModelPermission, RegisteredModel
from app.security.permissions import Caller, Permission
from app.services.access import projects
from app.services.lifecycle import audit
from app.services.model_registry import fine_tunes, registered
from app.services.model_registry.registered import FIELD
from app.services.model_registry.resolving import checkpoint_of
from app.services.requests.idempotency import OnWritten, not_stored

PROJECTS = "project_ids"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A model that another project may ask, since ``created_at``; ``owner`` is the project that has it."""

    name: str
    owner: str
    is_checkpoint: bool
    created_at: datetime


def grant(
    db: Database, caller: Caller, name: str, asking: Sequence[str], *, on_written: OnWritten = not_stored
) -> list[ModelPermission]:
    """Let these projects ask the model; a permission that there is already stays as it is.

    Raises NamedModelNotFound, NotFound for a project that does not exist, InvalidRequest for a base model and for the
    model's own project, and Conflict for a model that its job has not made yet.
    """
    caller.require(Permission.CLUSTER_ADMIN)
    with db.write() as session:
        row, name = _shareable(session, caller, name)
        if row.project in asking:
            raise BadSpec(f"{name} is a model of the project {row.project} itself; leave it out", field=PROJECTS)
        _hold(session, {*asking, str(row.project)})
        session.refresh(row, with_for_update=True)
        if row.removed_at is not None:
            raise registered.missing(session, caller, name)
        found = [_granted(session, caller, row, name, project) for project in dict.fromkeys(asking)]
        on_written(session, found)
        return found


def page(
    session: Session,
    caller: Caller,
    name: str,
    *,
    size: int,
    after: str | None,
    project: str | None = None,
    descending: bool = True,
) -> tuple[list[ModelPermission], bool]:
    """(permissions of the model by their creation, whether there are more). Raises as `grant`, and InvalidRequest."""
    caller.require(Permission.CLUSTER_ADMIN)
    _, name = _shareable(session, caller, name)
    query = select(ModelPermission).where(ModelPermission.name == name)
    if project is not None:
        query = query.where(ModelPermission.project == project)
    if after is not None:
        if PERMISSION_ID.fullmatch(after) is None:
            raise InvalidRequest(
                f"{after[:64]!r} is not the id of a permission; a list begins after one", field="after"
            )
        query = query.where(ModelPermission.id < after if descending else ModelPermission.id > after)
    ordered = query.order_by(ModelPermission.id.desc() if descending else ModelPermission.id)
    found = session.scalars(ordered.limit(size + 1)).all()
    return list(found[:size]), len(found) > size


def revoke(db: Database, caller: Caller, name: str, permission_id: str) -> None:
    """Take a permission back: gateways refuse new requests within a second; answers that have begun are completed.

    Raises NamedModelNotFound, and NotFound for a permission that the model does not have.
    """
    caller.require(Permission.CLUSTER_ADMIN)
    with db.write() as session:
        row, name = _shareable(session, caller, name)
        found = session.get(ModelPermission, permission_id) if PERMISSION_ID.fullmatch(permission_id) else None
        if found is None or found.name != name:
            raise NotFound(f"{name} has no permission {permission_id[:64]}")
        session.delete(found)
        data = {"project": found.project}
        audit.record(
            session, actor=caller.actor, action="model.unshare", project=row.project, target=name[:128], data=data
        )


def shared(session: Session, project: str, name: str) -> Shared | None:
    """What the name means if the project may ask it as a model of another one."""
    fine_tune = parsed(name)
    if fine_tune is None:
        return None
    exact = fine_tune.name if fine_tune.step is None else checkpoint_name(fine_tune.name, fine_tune.step)
    found = session.execute(_permitted(project).where(ModelPermission.name == exact)).one_or_none()
    return _shared(session, *found) if found is not None else None


def shared_with(session: Session, project: str, *, most: int) -> list[Shared]:
    """What the project may ask of others, the newest permission first."""
    rows = session.execute(_permitted(project).order_by(ModelPermission.id.desc()).limit(most)).all()
    return [found for row in rows if (found := _shared(session, *row)) is not None]


def _permitted(project: str) -> Select[ModelPermission, RegisteredModel]:
    both = select(ModelPermission, RegisteredModel).join(RegisteredModel, RegisteredModel.name == ModelPermission.model)
    return both.where(ModelPermission.project == project, RegisteredModel.removed_at.is_(None))


def _shared(session: Session, permission: ModelPermission, row: RegisteredModel) -> Shared | None:
    """None for what can't be asked now: its job was never COMPLETED, or the checkpoint was deleted."""
    fine_tune = parsed(permission.name)
    if fine_tune is None or row.project is None:
        return None
    is_checkpoint = fine_tune.step is not None
    is_there = (
        checkpoint_of(session, row, fine_tune.step) if fine_tune.step is not None else fine_tunes.usable(session, row)
    )
    if not is_there:
        return None
    return Shared(
        name=permission.name, owner=row.project, is_checkpoint=is_checkpoint, created_at=permission.created_at
    )


def _shareable(session: Session, caller: Caller, name: str) -> tuple[RegisteredModel, str]:
    """The row of a fine-tuned model, and what ``name`` is exactly."""
    fine_tune = parsed(name)
    row = registered.find(session, caller, fine_tune.name if fine_tune is not None else name)
    if fine_tune is None or row.project is None:
        raise BadSpec(f"{name[:128]} is a base model: trainyard models add says who may use it", field=FIELD)
    if fine_tune.step is None:
        if not fine_tunes.usable(session, row):
            raise Conflict(f"the job of {row.name} has not made it yet; share it when it is COMPLETED", field=FIELD)
        return row, row.name
    if checkpoint_of(session, row, fine_tune.step) is None:
        raise registered.missing(session, caller, name)
    return row, checkpoint_name(row.name, fine_tune.step)


def _hold(session: Session, names: Collection[str]) -> None:
    """Keep the projects from being deleted: before the model is locked, in the order in which a deletion locks."""
    for name in sorted(names):
        projects.hold(session, name)
        try:
            projects.require(session, name)
        except NotFound as error:
            error.field = PROJECTS
            raise


def _granted(session: Session, caller: Caller, row: RegisteredModel, name: str, project: str) -> ModelPermission:
    of_project = select(ModelPermission).where(ModelPermission.project == project, ModelPermission.name == name)
    if (found := session.scalar(of_project)) is not None:
        return found
    permission = ModelPermission(id=new_id("cp"), model=row.name, name=name, project=project, created_by=caller.actor)
    session.add(permission)
    session.flush()
    data = {"project": project}
    audit.record(session, actor=caller.actor, action="model.share", project=row.project, target=name[:128], data=data)
    return permission
