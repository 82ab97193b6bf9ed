"""Which services a project's jobs may connect to."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec
from app.domain.spec.locations.egress import GATE
from app.domain.spec.model import JobDocument
from app.models import Project


def services_of(session: Session, project: str, document: JobDocument) -> tuple[str, ...]:
    """The project's list at this moment; empty for a job that does not ask for a gate."""
    if document.resource_config.network != GATE:
        return ()
    return tuple(session.scalar(select(Project.egress).where(Project.name == project)) or ())


def refuse_without_services(session: Session, project: str, document: JobDocument) -> None:
    """Raises BadSpec for a job that asks for a gate which leads nowhere."""
    if document.resource_config.network == GATE and not services_of(session, project, document):
        raise BadSpec(without_services(project), field="resource_config.network")


def without_services(project: str) -> str:
    """Why a job of this project can't have a gate, and the way out."""
    return (
        f"the project {project} has no services that jobs may connect to; have an administrator list them: "
        f"trainyard projects egress {project} --add HOST:PORT"
    )
