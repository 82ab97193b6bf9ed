"""Models in the form that OpenAI's clients read."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from app.domain.errors import NamedModelNotFound
from app.domain.ids import JOB_ID
from app.domain.lifecycle.states import JobState
from app.domain.model_names import parsed
from app.domain.names import NAME
from app.domain.serving.states import ServiceState
from app.domain.spec.inference import TRAINING
from app.models import Checkpoint, Job, RegisteredModel, Service
from app.security.permissions import Caller, Permission
from app.services.model_registry import fine_tunes, permissions, registered
from app.services.model_registry.permissions import Shared
from app.services.model_registry.resolving import checkpoint_of

_PLATFORM = "system"  # owner of models for all projects


def model_objects(session: Session, caller: Caller) -> list[dict[str, Any]]:
    """Services, models that the caller may use, newest first, base models that were removed, and models of other
    projects that it may ask.

    A caller without the permission `view` sees the names that it may ask, and not what is behind them.
    """
    services = session.scalars(_services(caller).order_by(Service.created_at.desc(), Service.id))
    rows = registered.listed(session, caller)
    own = map(_object, rows if _views(caller) else [row for row in rows if row.removed_at is None])
    found = [*map(_of_service, services), *own]
    if caller.project is not None:
        shared = permissions.shared_with(session, caller.project, most=registered.MOST_LISTED)
        found += map(_of_other_project, shared)
    return [_as_seen_by(caller, each) for each in found]


def model_object(session: Session, caller: Caller, name: str) -> dict[str, Any]:
    """A service, a model, a checkpoint of one (…:ckpt-step-N), or the result of a job, by its ID.

    Raises NamedModelNotFound, without the permission `view` also for a base model that was removed.
    """
    return _as_seen_by(caller, _model_object(session, caller, name))


def _model_object(session: Session, caller: Caller, name: str) -> dict[str, Any]:
    service = session.scalar(_services(caller).where(Service.name == name)) if NAME.fullmatch(name) else None
    if service is not None:
        return _of_service(service)
    if JOB_ID.fullmatch(name):
        return _of_job(session, caller, name)
    if caller.project is not None and (shared := permissions.shared(session, caller.project, name)) is not None:
        return _of_other_project(shared)
    fine_tune = parsed(name)
    if fine_tune is None or fine_tune.step is None:
        row = registered.find(session, caller, name)
        if fine_tune is not None and not fine_tunes.usable(session, row):
            raise registered.missing(session, caller, name)
        if row.removed_at is not None and not _views(caller):
            raise registered.missing(session, caller, name)
        return _object(row)
    row = registered.find(session, caller, fine_tune.name)
    checkpoint = checkpoint_of(session, row, fine_tune.step)
    if checkpoint is None:
        raise NamedModelNotFound(f"{fine_tune.name} has no checkpoint of step {fine_tune.step}", field=registered.FIELD)
    return _of_checkpoint(row, checkpoint, name)


def _views(caller: Caller) -> bool:
    return caller.may(Permission.VIEW)


def _as_seen_by(caller: Caller, model: dict[str, Any]) -> dict[str, Any]:
    """For who may only ask models: nothing of the jobs and locations they were made from."""
    if _views(caller):
        return model
    return {**model, "trainyard": {"kind": model["trainyard"]["kind"], "base": None, "job_id": None}}


def _services(caller: Caller) -> Select[Service]:
    """Live ones of the caller's own project; automatic ones are left out, which answer by their models' names."""
    is_live = (Service.ended_at.is_(None), Service.status != ServiceState.ENDING, Service.is_automatic.is_(False))
    return select(Service).where(Service.project == caller.home_project, *is_live)


def _of_service(service: Service) -> dict[str, Any]:
    own = {"kind": "service", "base": service.model_key, "job_id": None, "task": service.task}
    return {**_plain(service.name, service.created_at, service.project), "trainyard": own}


def _of_job(session: Session, caller: Caller, job_id: str) -> dict[str, Any]:
    job = session.get(Job, job_id)
    if job is None or not caller.sees(job.project) or job.kind != TRAINING or job.state is not JobState.COMPLETED:
        raise registered.missing(session, caller, job_id)
    base = job.document.training_config.base_model.model_id
    own = {"kind": registered.FINE_TUNE, "base": base, "job_id": job.id}
    return {**_plain(job.id, job.created_at, job.project), "trainyard": own}


def _object(row: RegisteredModel) -> dict[str, Any]:
    own = {"kind": row.kind, "base": row.base, "job_id": row.job_id}
    removed = {"shutdown_date": row.removed_at.date().isoformat()} if row.removed_at is not None else {}
    return {**_plain(row.name, row.created_at, row.project), **removed, "trainyard": own}


def _of_other_project(shared: Shared) -> dict[str, Any]:
    """It says nothing of what it was made from and by."""
    own = {"kind": "checkpoint" if shared.is_checkpoint else registered.FINE_TUNE, "base": None, "job_id": None}
    return {**_plain(shared.name, shared.created_at, shared.owner), "trainyard": own}


def _of_checkpoint(row: RegisteredModel, checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    own = {"kind": "checkpoint", "base": row.base, "job_id": row.job_id, "checkpoint": checkpoint.id}
    return {**_plain(name, checkpoint.created_at, row.project), "trainyard": own}


def _plain(name: str, created_at: datetime, project: str | None) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _seconds(created_at), "owned_by": project or _PLATFORM}


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
