"""What a model's name in a request means: a registered model, a fine-tune or its checkpoint, a job, or a location."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import Conflict, TrainyardError
from app.domain.ids import JOB_ID
from app.domain.model_names import BASE_NAME, parsed
from app.domain.spec.locations.paths import NO_MODEL
from app.models import Checkpoint, RegisteredModel
from app.security.permissions import Caller
from app.services.jobs import lookup, made_models
from app.services.model_registry import registered
from app.services.model_registry.registered import BASE, FIELD


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """A location, or what a job has made: its result, or one of its checkpoints. ``name`` is what was asked for."""

    name: str
    location: str | None = None
    job_id: str | None = None
    checkpoint_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class BaseChoice:
    """``base_model``: the section of a training's document. ``name``: the base that `fine_tunes.planned` takes.

    ``hyperparameters``: those that the training must have to continue an adapter; empty otherwise.
    """

    base_model: Mapping[str, Any]
    name: str
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    adapter: bool = False


def meaning(session: Session, caller: Caller, project: str, name: str) -> Meaning | None:
    """None for what is no name of a model, such as a path. A registered name precedes a directory and a hub id.

    Raises NamedModelNotFound for fine-tunes and checkpoints that the project never had, and Conflict for removed ones
    and for removed base models.
    """
    fine_tune = parsed(name)
    if fine_tune is not None:
        row = registered.find(session, caller, fine_tune.name)
        if row.project != project:
            raise registered.missing(session, caller, name)
        if fine_tune.step is None:
            return Meaning(name=name, job_id=row.job_id)
        checkpoint = checkpoint_of(session, row, fine_tune.step)
        if checkpoint is None:
            if not _had_checkpoint(session, row, fine_tune.step):
                raise registered.missing(session, caller, name)
            raise Conflict(
                f"{fine_tune.name} has no checkpoint of step {fine_tune.step} any more; list those of {row.job_id} "
                "with GET /v1/jobs/{job_id}/checkpoints",
                field=FIELD,
            )
        return Meaning(name=name, job_id=row.job_id, checkpoint_id=checkpoint.id)
    if JOB_ID.fullmatch(name):
        return Meaning(name=name, job_id=lookup.find(session, caller, name).id)
    base = _base(session, project, name)
    if base is None:
        return None
    if base.removed_at is not None:
        raise Conflict(f"the model {name} was removed on {base.removed_at:%Y-%m-%d}; take another one", field=FIELD)
    return Meaning(name=name, location=base.location)


def checkpoint_of(session: Session, row: RegisteredModel, step: int) -> Checkpoint | None:
    """The newest checkpoint of a fine-tune's job at this step that was not deleted."""
    of_step = select(Checkpoint).where(Checkpoint.job_id == row.job_id, Checkpoint.step == step)
    return session.scalar(of_step.where(Checkpoint.deleted_at.is_(None)).order_by(Checkpoint.id.desc()).limit(1))


def base_named(session: Session, project: str, name: str) -> RegisteredModel | None:
    """The registered base model of this name that the project may use, unless it was removed."""
    base = _base(session, project, name)
    return base if base is not None and base.removed_at is None else None


def _base(session: Session, project: str, name: str) -> RegisteredModel | None:
    base = session.get(RegisteredModel, name) if BASE_NAME.fullmatch(name) else None
    return base if base is not None and base.kind == BASE and base.project in (None, project) else None


def _had_checkpoint(session: Session, row: RegisteredModel, step: int) -> bool:
    of_step = select(Checkpoint.id).where(Checkpoint.job_id == row.job_id, Checkpoint.step == step)
    return session.scalar(of_step.limit(1)) is not None


def resolve_for_training(session: Session, caller: Caller, project: str, name: str) -> BaseChoice:
    """The base model of a fine-tuning job. A name without a slash must be registered, else it would be a hub id.

    Raises as `meaning`, with NamedModelNotFound for an unknown name, too.
    """
    found = meaning(session, caller, project, name)
    if found is None and "/" not in name:
        raise registered.missing(session, caller, name)
    if found is None or found.location is not None:
        location = found.location if found is not None else name
        return BaseChoice(base_model={"model_id": location}, name=name)
    if found.checkpoint_id is not None:
        raise Conflict(
            f"{name} is a checkpoint, and only finished models are trained further; take {name.rpartition(':')[0]}, or "
            "resume its job",
            field=FIELD,
        )
    return _continued(session, caller, project, found)


def _continued(session: Session, caller: Caller, project: str, found: Meaning) -> BaseChoice:
    """The result of a job as base model, with the field of the request in errors."""
    try:
        job = made_models.find_job(session, caller, project, str(found.job_id), at=FIELD)
        adapter = made_models.is_adapter(session, job, at=FIELD, way_out="wait until it is COMPLETED")
    except TrainyardError as error:
        error.field = FIELD
        raise
    return BaseChoice(
        base_model={"model_id": NO_MODEL, "job_id": job.id},
        name=found.name,
        hyperparameters=made_models.adapter_hyperparameters(job.document) if adapter else {},
        adapter=adapter,
    )
