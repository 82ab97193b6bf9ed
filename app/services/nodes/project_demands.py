"""The capabilities that projects demand of the nodes of their jobs, such as a rung of isolation."""

from collections.abc import Mapping

from sqlalchemy import Text, cast, literal_column, select
from sqlalchemy.orm import Session

from app.domain.errors import CannotFit
from app.models import Project
from app.models.project import DEMANDS

NOTHING: frozenset[str] = frozenset()
FIELD = "scheduling_config.required_capabilities"


def of_projects(session: Session) -> Mapping[str, frozenset[str]]:
    """Project → what it demands, of those that demand anything."""
    with_quota = select(Project.name, Project.quota).where(cast(Project.quota, Text) != literal_column("'{}'"))
    found = {row.name: demanded(row.quota) for row in session.execute(with_quota)}
    return {name: words for name, words in found.items() if words}


def of_project(session: Session, name: str) -> frozenset[str]:
    quota = session.scalar(select(Project.quota).where(Project.name == name))
    return demanded(quota or {})


def demanded(quota: Mapping[str, object]) -> frozenset[str]:
    """``quota``: a project's, as it is stored."""
    found = quota.get(DEMANDS)
    return frozenset(map(str, found)) if isinstance(found, list) else NOTHING


def explained(error: CannotFit, project: str, words: frozenset[str]) -> CannotFit:
    """The error, which says that it is the project which demands what no node offers."""
    if error.field == FIELD and words:
        also = f"the project {project} demands {', '.join(sorted(words))} of the nodes of its jobs"
        return CannotFit(f"{error.message}; {also}", field=FIELD)
    return error
