"""Projects: creating, changing, deleting, and access checks."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import case, func, or_, select
from sqlalchemy import delete as sql_delete
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.administration import AS_INSTALLED, CREATE_CLAIMS, OPTIONAL_DIGESTS
from app.domain.batches.states import ENDED
from app.domain.errors import Conflict, InvalidRequest, NotFound, TrainyardError, Unavailable
from app.domain.files.purposes import RECEIVING
from app.domain.interactive import ALLOWED
from app.domain.names import DEFAULT_PROJECT
from app.domain.scheduling import fair_share
from app.domain.spec.locations.egress import MOST_SERVICES
from app.domain.suggestions import did_you_mean
from app.models import (
    ApiKey,
    Batch,
    Checkpoint,
    File,
    Inspection,
    Job,
    ModelPermission,
    ModelUsage,
    Project,
    ProjectUsage,
    QueueWait,
    RegisteredModel,
    Service,
    StoredBaseModel,
    Sweep,
    SweepCount,
    TrainingRuntime,
    Upload,
    Webhook,
)
from app.models.base import utc_now
from app.models.project import DEMANDS
from app.security.permissions import Caller
from app.services.lifecycle import audit
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from app.storage.object_keys import upload_parts_key
from app.storage.storage import Storage

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
# What is deleted with its project; everything else must be gone before.
_OWNED = (
    *(ApiKey, Webhook, Inspection, QueueWait, ProjectUsage, TrainingRuntime, StoredBaseModel, RegisteredModel, Upload),
    *(Service, ModelUsage, Batch, ModelPermission, SweepCount),
)
_NO_QUOTA: Mapping[str, Any] = MappingProxyType({})
ORDERS: Orders = {"created_at": (Project.created_at, Project.name), "name": (Project.name,)}


def ensure(session: Session, name: str, *, actor: str) -> Project:
    """The project, created if it is missing."""
    return session.get(Project, name) or _add(session, name, "", actor)


def create(  # noqa: PLR0913  a project has this many fields
    db: Database,
    caller: Caller,
    name: str,
    *,
    description: str = "",
    quota: Mapping[str, Any] = _NO_QUOTA,
    egress: Sequence[str] = (),
    sessions: str = ALLOWED,
    claims: str = CREATE_CLAIMS,
    auto_services: str = AS_INSTALLED,
    image_sources: Sequence[str] = (),
    image_digests: str = OPTIONAL_DIGESTS,
    required_capabilities: Sequence[str] = (),
    on_written: OnWritten = not_stored,
) -> Project:
    """Create a project. Raises Conflict if the name exists, InvalidRequest for a caller within another project."""
    if caller.project is not None:
        raise InvalidRequest(f"a new project is not part of {caller.project}; omit X-Project")
    try:
        with db.write() as session:
            if session.get(Project, name) is not None:
                raise _taken(name)
            project = _add(session, name, description, caller.actor)
            project.quota = fair_share.merged({}, {**quota, DEMANDS: sorted({*required_capabilities})})
            project.egress = list(egress)
            project.sessions = sessions
            project.claims, project.auto_services = claims, auto_services
            project.image_sources, project.image_digests = list(image_sources), image_digests
            on_written(session, project)
            return project
    except IntegrityError as error:
        raise _taken(name) from error


def change(db: Database, caller: Caller, name: str, changes: dict[str, Any]) -> Project:
    """Change the given fields; quota limits are merged, and None removes one. Raises InvalidRequest.

    A quota applies from the commit on to submissions and starts, which lock the project as well.
    """
    with db.write() as session:
        project = visible(session, caller, name, lock=True)
        columns = {column: value for column, value in changes.items() if column not in ("quota", DEMANDS)}
        demands = {DEMANDS: sorted({*changes[DEMANDS]})} if DEMANDS in changes else {}
        if limits := {**changes.get("quota", {}), **demands}:
            columns["quota"] = fair_share.merged(project.quota, limits)
        changed = {column: value for column, value in columns.items() if getattr(project, column) != value}
        for column, value in changed.items():
            setattr(project, column, value)
        if changed:
            shown = {column: value for column, value in changed.items() if column in changes}
            audit.record(
                session,
                actor=caller.actor,
                action="project.patch",
                project=name,
                target=name,
                data={"changes": {**shown, **demands}},
            )
        return project


def change_egress(
    db: Database,
    caller: Caller,
    name: str,
    *,
    add: Sequence[str],
    remove: Collection[str],
    on_written: OnWritten = not_stored,
) -> Project:
    """Add services to the project's list and remove others. Raises InvalidRequest when the list gets too long."""
    with db.write() as session:
        project = visible(session, caller, name, lock=True)
        before = list(project.egress)
        after = [each for each in dict.fromkeys((*before, *add)) if each not in remove]
        if len(after) > MOST_SERVICES:
            raise InvalidRequest(
                f"a project has at most {MOST_SERVICES} services, and would have {len(after)}; use *.DOMAIN:PORT for "
                "several of one domain",
                field="add",
            )
        if after != before:
            project.egress = after
            data = {"changes": {"egress": after}}
            audit.record(session, actor=caller.actor, action="project.patch", project=name, target=name, data=data)
        session.flush()
        on_written(session, project)
        return project


def delete(db: Database, storage: Storage, caller: Caller, name: str) -> None:
    """Delete a project that has neither jobs, services nor files, with its keys and webhooks.

    Raises Conflict if it has any, Unavailable when parts of its uploads can't be deleted from the storage. A concurrent
    submission fails because the project no longer exists.
    """
    with db.read() as session:
        visible(session, caller, name)
        ended = session.scalars(select(Upload.id).where(Upload.project == name, Upload.status != "pending")).all()
    _drop_parts(storage, name, ended)
    with db.write() as session:
        project = visible(session, caller, name, lock=True)
        _refuse_if_used(session, name)
        _refuse_if_more_have_ended(session, name, ended)
        good = select(ApiKey.id).where(ApiKey.project == name, ApiKey.revoked_at.is_(None)).order_by(ApiKey.id)
        revoked = list(session.scalars(good))
        for key_id in revoked:
            audit.record(
                session,
                actor=caller.actor,
                action="key.revoke",
                project=name,
                target=key_id,
                message="its project was deleted",
            )
        for owned in _OWNED:
            session.execute(sql_delete(owned).where(owned.project == name))
        audit.record(
            session,
            actor=caller.actor,
            action="project.delete",
            project=name,
            target=name,
            data={"revoked_keys": len(revoked)},
        )
        session.delete(project)


def enter(db: Database, caller: Caller, name: str) -> Caller:
    """The caller restricted to one project, for lists and new objects.

    Raises the same NotFound for a missing and a foreign project.
    """
    if caller.project is not None:
        caller.require_project(name[:63])
        return caller
    with db.read() as session:
        visible(session, caller, name)
    return replace(caller, project=name)


def require(session: Session, name: str, *, lock: bool = False) -> Project:
    project = session.get(Project, name, with_for_update=True if lock else None) if "\0" not in name else None
    if project is None:
        raise NotFound(f"no project {name[:63]}")
    return project


def hold(session: Session, name: str) -> None:
    """Lock the project, if it exists, against deletion until the transaction ends.

    Required before locking an object of the project and then creating another: deletion locks in the same order.
    """
    session.get(Project, name, with_for_update={"read": True, "key_share": True}, populate_existing=True)


def referred(session: Session, caller: Caller, reference: str) -> Project:
    """The visible project with this number or, if there is none, this name. Raises NotFound."""
    if _NUMBER.fullmatch(reference):
        found = session.scalar(select(Project).where(Project.number == int(reference)))
        if found is not None and caller.sees(found.name):
            return found
    return visible(session, caller, reference)


def number_of(session: Session, name: str) -> int:
    """The number of a project that exists."""
    return session.scalars(select(Project.number).where(Project.name == name)).one()


def page(session: Session, caller: Caller, request: PageRequest) -> Page[Project]:
    query = select(Project)
    if caller.project is not None:
        query = query.where(Project.name == caller.project)
    return page_of(session, query, ORDERS, request)


def names(session: Session, caller: Caller) -> list[str]:
    """The names of the projects that the caller sees."""
    query = select(Project.name).order_by(Project.name)
    return list(session.scalars(query if caller.project is None else query.where(Project.name == caller.project)))


def visible(session: Session, caller: Caller, name: str, *, lock: bool = False) -> Project:
    """The project. Raises the same NotFound for a missing and a foreign one; for a caller who sees all projects it
    names the one that may be meant.
    """
    caller.require_project(name[:63])
    try:
        return require(session, name, lock=lock)
    except NotFound as error:
        error.message += did_you_mean(name[:63], names(session, caller))
        raise


def _add(session: Session, name: str, description: str, actor: str) -> Project:
    # Serialized by a lock, so that numbers are unique.
    session.get(Project, DEFAULT_PROJECT, with_for_update={"key_share": True})
    project = Project(name=name, description=description)
    session.add(project)
    session.flush()
    audit.record(session, actor=actor, action="project.create", project=name, target=name)
    return project


def _refuse_if_used(session: Session, name: str) -> None:
    if name == DEFAULT_PROJECT:
        raise Conflict(f"the project {name} cannot be deleted: it is the default project")
    jobs = session.scalar(select(func.count()).select_from(Job).where(Job.project == name)) or 0
    checkpoints = session.scalar(select(func.count()).select_from(Checkpoint).where(Checkpoint.project == name)) or 0
    sweeps = session.scalar(select(func.count()).select_from(Sweep).where(Sweep.project == name)) or 0
    if sweeps:
        raise Conflict(
            f"the project {name} still has {sweeps} sweeps; delete them first (DELETE /v1/sweeps/{{sweep_id}})"
        )
    _refuse_if_it_has_services(session, name)
    _refuse_if_it_has_batches(session, name)
    _refuse_if_it_has_files(session, name)
    if jobs or checkpoints:
        held = f"{jobs} jobs" if jobs else f"{checkpoints} checkpoints"
        raise Conflict(
            f"the project {name} still has {held}; delete them first (DELETE /v1/jobs/{{job_id}}?artifacts=true)"
        )


def _refuse_if_it_has_services(session: Session, name: str) -> None:
    """Ended ones are only records, which are deleted with the project."""
    live = Service.project == name, Service.ended_at.is_(None)
    if services := session.scalar(select(func.count()).select_from(Service).where(*live)) or 0:
        raise Conflict(
            f"the project {name} still has {services} services; delete them first (DELETE /v1/services/{{name}}) and "
            "wait until their replicas have ended"
        )


def _refuse_if_it_has_batches(session: Session, name: str) -> None:
    """As with services."""
    live = Batch.project == name, Batch.status.not_in(ENDED)
    if batches := session.scalar(select(func.count()).select_from(Batch).where(*live)) or 0:
        raise Conflict(
            f"the project {name} still has {batches} batches; cancel them (POST /v1/batches/{{batch_id}}/cancel) and "
            "wait until they have ended"
        )


def _refuse_if_it_has_files(session: Session, name: str) -> None:
    hidden = or_(File.status == RECEIVING, File.expires_at <= utc_now())
    counts = select(func.count(), func.count(case((hidden, 1)))).where(File.project == name)
    files, unseen = session.execute(counts.select_from(File)).one()
    pending = Upload.project == name, Upload.status == "pending"
    uploads = session.scalar(select(func.count()).select_from(Upload).where(*pending)) or 0
    if files > unseen or uploads:
        held = f"{files - unseen} files" if files > unseen else f"{uploads} uploads"
        raise Conflict(
            f"the project {name} still has {held}; delete files first (DELETE /v1/files/{{file_id}}), cancel uploads"
        )
    if unseen:
        raise Conflict(
            f"the project {name} still has the content of {unseen} files that were deleted, have expired or were not "
            "received completely; a coordinator deletes it within a day, or once no job needs it: try again later"
        )


def _drop_parts(storage: Storage, name: str, upload_ids: Sequence[str]) -> None:
    """Delete what is left of the parts of ended uploads: only their rows lead to them, and go with the project."""
    for upload_id in upload_ids:
        try:
            storage.delete_tree(upload_parts_key(name, upload_id))
        except TrainyardError as error:
            raise Unavailable(
                f"the project {name} still has parts of {upload_id}, which can't be deleted yet; try again later: "
                f"{error.message}"
            ) from error


def _refuse_if_more_have_ended(session: Session, name: str, ended: Sequence[str]) -> None:
    more = select(Upload.id).where(Upload.project == name, Upload.id.not_in(ended)).limit(1)
    if found := session.scalar(more):
        raise Conflict(f"the upload {found} of the project {name} has ended just now; delete the project again")


def _taken(name: str) -> Conflict:
    return Conflict(f"the project {name} already exists; change it with PATCH /v1/projects/{name}")
