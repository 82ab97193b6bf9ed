"""Projects: whom everything belongs to."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.models import Project
from app.security.permissions import Caller
from app.services.pages import Orders, Page, PageRequest, page_of

ORDERS: Orders = {
    "created_at": (Project.created_at, Project.name),
    "name": (Project.name,),
}


def ensure(session: Session, name: str) -> Project:
    """The project, made when it is not there."""
    project = session.get(Project, name)
    if project is None:
        project = Project(name=name)
        session.add(project)
        session.flush()
    return project


def require(session: Session, name: str) -> Project:
    project = session.get(Project, name)
    if project is None:
        raise NotFound(f"no project {name[:63]}")
    return project


def page(session: Session, caller: Caller, request: PageRequest) -> Page[Project]:
    query = select(Project)
    if caller.project is not None:
        query = query.where(Project.name == caller.project)
    return page_of(session, query, ORDERS, request)


def visible(session: Session, caller: Caller, name: str) -> Project:
    """The project; raises NotFound alike for one that does not exist and one that is not the caller's."""
    caller.require_project(name[:63])
    return require(session, name)
