"""The capabilities that projects demand of the nodes of their jobs, such as a rung of isolation."""

from collections.abc import Mapping

from sqlalchemy import Text, cast, literal_column, select
from sqlalchemy.orm import Session

from app.domain.errors import CannotFit
from app.domain.nodes.project_demand import NO_DEMAND, ProjectDemand
from app.models import Project
from app.models.project import DEMANDS

FIELD = "scheduling_config.required_capabilities"


def of_projects(session: Session) -> Mapping[str, ProjectDemand]:
    """Project → what it demands, of those that demand anything."""
    with_quota = select(Project.name, Project.quota).where(cast(Project.quota, Text) != literal_column("'{}'"))
    found = {row.name: ProjectDemand(row.name, demanded(row.quota)) for row in session.execute(with_quota)}
    return {name: demand for name, demand in found.items() if demand.words}


def of_project(session: Session, name: str) -> ProjectDemand:
    quota = session.scalar(select(Project.quota).where(Project.name == name))
    return ProjectDemand(name, words) if (words := demanded(quota or {})) else NO_DEMAND


def demanded(quota: Mapping[str, object]) -> frozenset[str]:
    """``quota``: a project's, as it is stored."""
    found = quota.get(DEMANDS)
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def explained(error: CannotFit, demand: ProjectDemand) -> CannotFit:
    """The error, which says that it is the project which demands what no node offers."""
    if error.field == FIELD and demand.words:
        also = f"the project {demand.project} demands {', '.join(sorted(demand.words))} of the nodes of its jobs"
        return CannotFit(f"{error.message}; {also}", field=FIELD)
    return error
