"""Addresses of notebooks that answers of other vocabularies have: each with a token of the caller's own key.

They open no more than the key does, and an answer has one as often as it is read: the audit trail has a line when one
is used.
"""

from datetime import timedelta

from sqlalchemy.orm import Session

from app.domain.interactive import OFF
from app.domain.port_addresses import TOKEN
from app.domain.spec.interactive import NOTEBOOK_PORT
from app.models import Job, Project
from app.models.base import utc_now
from app.security.permissions import Caller, Permission
from app.services.interactive.addresses import port_address
from app.services.interactive.ports import PortLink, new_token
from config.settings import Settings


def may_be_reached(session: Session, job: Job) -> bool:
    """Whether the project lets people into its jobs."""
    return session.get_one(Project, job.project).sessions != OFF


def of_notebook(session: Session, settings: Settings, caller: Caller, job: Job) -> PortLink | None:
    """None where no gateway serves ports, and for callers who may not run code in the job, which a notebook does."""
    address = port_address(settings.gateway.ports_url, job.id, NOTEBOOK_PORT)
    if address is None or not caller.may(Permission.MANAGE) or not may_be_reached(session, job):
        return None
    seconds = settings.gateway.port_seconds
    expires_at = utc_now().replace(microsecond=0) + timedelta(seconds=seconds)
    token = new_token(settings.security.secret_key, caller, job.id, NOTEBOOK_PORT, seconds=seconds)
    return PortLink(url=f"{address}?{TOKEN}={token}", token=token, expires_at=expires_at)
