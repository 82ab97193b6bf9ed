"""Fine-tuned models with names: planned at the submission of their job, usable once it is COMPLETED."""

from collections.abc import Collection, Mapping

from sqlalchemy import String, cast, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, StillNeeded
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.model_names import SUFFIX, SUFFIX_RULE, ft_name, parsed
from app.models import Job, RegisteredModel
from app.models.base import utc_now
from app.security.permissions import Caller, Permission
from app.services.lifecycle import audit
from app.services.model_registry import registered
from app.services.model_registry.registered import BASE, FIELD, FINE_TUNE


def planned(session: Session, job: Job, base: str, suffix: str | None) -> RegisteredModel:
    """Insert the row of the model that a new job makes, in the transaction of its submission. Raises BadSpec."""
    if suffix and SUFFIX.fullmatch(suffix) is None:
        raise BadSpec(f"a suffix can't be {suffix[:128]!r}: {SUFFIX_RULE}", field="suffix")
    row = RegisteredModel(
        name=ft_name(base, job.project, suffix, job.id),
        kind=FINE_TUNE,
        project=job.project,
        base=base[-255:],
        job_id=job.id,
        created_by=job.created_by,
    )
    session.add(row)
    return row


def hold(session: Session, caller: Caller, name: str) -> None:
    """Lock the fine-tuned model that a new job continues, if it is one, against deletion until the transaction ends.

    Call it in the transaction that adds the job. Raises NamedModelNotFound when the model was deleted meanwhile.
    """
    if parsed(name) is None:
        return
    row = session.get(RegisteredModel, name, with_for_update={"read": True}, populate_existing=True)
    if row is not None and row.removed_at is not None:
        raise registered.missing(session, caller, name)


def of_jobs(session: Session, job_ids: Collection[str]) -> Mapping[str, RegisteredModel]:
    """Job → the fine-tuned model that it makes, also one that was deleted."""
    rows = session.scalars(select(RegisteredModel).where(RegisteredModel.job_id.in_(job_ids)))
    return {row.job_id: row for row in rows if row.job_id is not None}


def usable(session: Session, row: RegisteredModel) -> bool:
    """Whether new work may use the model: it is not removed, and a fine-tuned model's job is COMPLETED."""
    if row.removed_at is not None:
        return False
    if row.job_id is None:
        return True
    return session.scalar(select(Job.status).where(Job.id == row.job_id)) == JobState.COMPLETED


def delete(db: Database, caller: Caller, name: str) -> None:
    """Delete a fine-tuned model's name; the files of its job are deleted by retention, or with the job.

    Raises NamedModelNotFound, InvalidRequest for a base model, and StillNeeded while a job that has not ended uses it.
    """
    caller.require(Permission.MANAGE)
    with db.write() as session:
        row = registered.find(session, caller, name)
        if row.kind == BASE:
            raise BadSpec(
                f"{name} is a base model, which an administrator removes with trainyard models rm {name}", field=FIELD
            )
        if not usable(session, row):
            raise registered.missing(session, caller, name)
        session.refresh(row, with_for_update=True)
        if user := _user(session, row):
            raise StillNeeded(f"job {user} has not ended and uses {name}; wait for its end or cancel it", field=FIELD)
        row.removed_at = utc_now()
        audit.record(session, actor=caller.actor, action="model.delete", project=row.project, target=row.name)


def _user(session: Session, row: RegisteredModel) -> str | None:
    """A job that has not ended and whose document names the job that made the model."""
    named = cast(Job.spec, String).contains(row.job_id or "", autoescape=True)
    of_project = select(Job.id).where(Job.project == row.project, Job.status.not_in(TERMINAL), Job.id != row.job_id)
    return session.scalar(of_project.where(named).limit(1))
