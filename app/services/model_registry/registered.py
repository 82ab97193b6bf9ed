"""Models with names: registration and removal of base models, and which models a caller may use."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, or_, select, true
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, Conflict, NamedModelNotFound
from app.domain.lifecycle.states import JobState
from app.domain.model_names import BASE_NAME, BASE_NAME_RULE
from app.domain.serving.model_keys import model_key
from app.domain.spec.inference import ModelReference
from app.domain.spec.locations.paths import NO_MODEL, is_hub_id, kind_of
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import BaseModel
from app.domain.suggestions import did_you_mean
from app.models import File, Job, RegisteredModel, Service
from app.models.base import utc_now
from app.security.permissions import Caller, Permission
from app.services.access import projects
from app.services.files.listing import is_hidden
from app.services.lifecycle import audit
from app.services.requests.idempotency import OnWritten, not_stored

BASE, FINE_TUNE = "base", "fine_tune"  # RegisteredModel.kind
FIELD = "model"
MOST_LISTED = 10_000
_MOST_NAMED = 10  # in an error
_LONGEST_SHOWN = 128


def register(
    db: Database,
    caller: Caller,
    name: str,
    location: str,
    *,
    project: str | None = None,
    on_written: OnWritten = not_stored,
) -> RegisteredModel:
    """Name a base model, for one project or for all; a removed name is taken again.

    Raises InvalidRequest, NotFound for a project that does not exist, and Conflict for a name that is in use, also by a
    service of another model: requests that name it would be answered by that.
    """
    caller.require(Permission.CLUSTER_ADMIN)
    if BASE_NAME.fullmatch(name) is None:
        raise BadSpec(f"the name {name[:_LONGEST_SHOWN]!r} can't be a model's: {BASE_NAME_RULE}", field="name")
    _refuse_no_place(location)
    with db.write() as session:
        if project is not None:
            projects.require(session, project, lock=True)
        _refuse_name_of_service(session, name, location, project)
        _hold_file(session, location, project)
        row = session.get(RegisteredModel, name, with_for_update=True)
        if row is not None and row.removed_at is None:
            raise Conflict(f"there is a model {name} already, {row.location}; take another name, or remove that one")
        if row is None:
            row = RegisteredModel(name=name, kind=BASE)
            session.add(row)
        row.location, row.project, row.removed_at = location, project, None
        row.created_by, row.created_at = caller.actor, utc_now()
        _record(session, caller, row, "model.add")
        on_written(session, row)
        return row


def _refuse_name_of_service(session: Session, name: str, location: str, project: str | None) -> None:
    key = model_key(BaseModel().changed(model_id=location), ModelReference())
    others = select(Service).where(Service.name == name, Service.ended_at.is_(None), Service.model_key != key)
    if project is not None:
        others = others.where(Service.project == project)
    service = session.scalar(others.order_by(Service.project).limit(1))
    if service is not None:
        raise Conflict(
            f"the project {service.project} has a service {name}, which serves {service.model_key}; take another name, "
            "or delete that service first",
            field="name",
        )


def remove(db: Database, caller: Caller, name: str) -> None:
    """Remove a base model's name: it is still listed, and refuses new work; what runs is left alone.

    Raises NamedModelNotFound, and InvalidRequest for a fine-tuned model.
    """
    caller.require(Permission.CLUSTER_ADMIN)
    with db.write() as session:
        row = session.get(RegisteredModel, name, with_for_update=True)
        if row is None or row.removed_at is not None:
            raise missing(session, caller, name)
        if row.kind != BASE:
            raise BadSpec(f"{name} is a fine-tuned model; delete it with DELETE /v1/models/{name}", field=FIELD)
        row.removed_at = utc_now()
        _record(session, caller, row, "model.remove")


def listed(session: Session, caller: Caller) -> Sequence[RegisteredModel]:
    """Base models, removed ones too, and fine-tuned models that can be used, newest first."""
    return session.scalars(_listed(caller).limit(MOST_LISTED)).all()


def find(session: Session, caller: Caller, name: str) -> RegisteredModel:
    """A base model, removed ones too, or a fine-tuned model, whether it can be used yet or not.

    Raises the same NamedModelNotFound for a missing model, a deleted one, and one of another project.
    """
    row = session.scalar(select(RegisteredModel).where(_seen(caller), RegisteredModel.name == _storable(name)))
    if row is None or (row.kind == FINE_TUNE and row.removed_at is not None):
        raise missing(session, caller, name)
    return row


def described(row: RegisteredModel, caller: Caller) -> dict[str, Any]:
    """What the caller sees of it: where a model of all projects is stored concerns administrators alone."""
    names = ("name", "kind", "project", "location", "base", "job_id", "created_at", "removed_at")
    found = {name: getattr(row, name) for name in names}
    return found if row.project is not None or caller.may(Permission.CLUSTER_ADMIN) else {**found, "location": None}


def missing(session: Session, caller: Caller, name: str) -> NamedModelNotFound:
    """The error for a name that means no model, which lists those that the caller may use."""
    usable = _listed(caller).where(RegisteredModel.removed_at.is_(None))
    names = session.scalars(usable.with_only_columns(RegisteredModel.name).limit(MOST_LISTED)).all()
    more = ", and more: GET /v1/models" if len(names) > _MOST_NAMED else ""
    known = f"there are: {', '.join(names[:_MOST_NAMED])}{more}" if names else "none is registered"
    return NamedModelNotFound(f"no model {name[:_LONGEST_SHOWN]}{did_you_mean(name, names)}; {known}", field=FIELD)


def _listed(caller: Caller) -> Select[RegisteredModel]:
    finished = (RegisteredModel.kind == BASE) | (
        RegisteredModel.removed_at.is_(None) & (Job.status == JobState.COMPLETED)
    )
    query = select(RegisteredModel).outerjoin(Job, Job.id == RegisteredModel.job_id).where(_seen(caller), finished)
    return query.order_by(RegisteredModel.created_at.desc(), RegisteredModel.name)


def _seen(caller: Caller) -> ColumnElement[bool]:
    if caller.project is None:
        return true()
    return or_(RegisteredModel.project == caller.project, RegisteredModel.project.is_(None))


def _storable(name: str) -> str:
    return "" if "\0" in name or not name.isprintable() else name


def _refuse_no_place(location: str) -> None:
    if not location.strip() or location == NO_MODEL:
        raise BadSpec("name a model of the hub, a directory that jobs may read, or the URI of one", field="location")
    if not is_hub_id(location):
        kind_of(location, field="location")


def _hold_file(session: Session, location: str, project: str | None) -> None:
    """Lock an uploaded file against deletion until the model that names it is stored. Raises BadSpec without one."""
    if not is_upload(location):
        return
    file = session.get(File, location, with_for_update={"read": True}, populate_existing=True)
    if file is None or is_hidden(file) or project not in (None, file.project):
        where = "" if project is None else f" in the project {project}"
        raise BadSpec(f"there is no file {location}{where}; list files with GET /v1/files", field="location")


def _record(session: Session, caller: Caller, row: RegisteredModel, action: str) -> None:
    data = {"location": row.location}
    audit.record(session, actor=caller.actor, action=action, project=row.project, target=row.name, data=data)
