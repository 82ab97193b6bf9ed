"""Whether jobs of a project may make volume claims."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.administration import CREATE_CLAIMS
from app.domain.errors import BadSpec
from app.domain.spec.model import JobDocument
from app.models import Project


def may_create(session: Session, project: str) -> bool:
    """At this moment."""
    return session.scalar(select(Project.claims).where(Project.name == project)) == CREATE_CLAIMS


def refuse_new_claims(session: Session, project: str, document: JobDocument) -> None:
    """Raises BadSpec for a job that would create a claim, if its project may only use existing ones."""
    numbers = [number for number, mount in enumerate(document.resource_config.mounts) if mount.create]
    if numbers and not may_create(session, project):
        raise BadSpec(only_uses(project), field=f"resource_config.mounts.{numbers[0]}.create")


def only_uses(project: str) -> str:
    """Why a job of this project can't make a claim, and the way out."""
    return (
        f"jobs of the project {project} make no volume claims; name one that is there, without create, or have an "
        f"administrator allow it: trainyard projects change {project} --claims create"
    )
