"""A project, which owns jobs, keys, webhooks and their data."""

from datetime import datetime
from typing import Any

from sqlalchemy import Double, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.administration import AS_INSTALLED, CREATE_CLAIMS, OPTIONAL_DIGESTS
from app.domain.interactive import ALLOWED
from app.domain.scheduling.fair_share import document_of, quota_of
from app.models.base import Base, utc_now

DEMANDS = "required_capabilities"
_NEXT_NUMBER = text("(SELECT coalesce(max(number), 0) + 1 FROM project)")


class Project(Base):
    __tablename__ = "project"
    __table_args__ = (Index("uq_project_number", "number", unique=True),)

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    # For clients that identify projects by number: `default` is 1, and numbers never change.
    number: Mapped[int] = mapped_column(default=_NEXT_NUMBER, server_default=text("0"))
    description: Mapped[str] = mapped_column(String(255), default="", server_default=text("''"))
    # Only limits that are set, and under DEMANDS what it demands of nodes.
    quota: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    # Services that its jobs may connect to, as host:port.
    egress: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    # Shells, commands and forwarded ports of people in its jobs: allowed, recorded or off.
    sessions: Mapped[str] = mapped_column(String(16), default=ALLOWED, server_default=ALLOWED)
    # Whether its jobs may create volume claims, or only use existing ones: create or use.
    claims: Mapped[str] = mapped_column(String(16), default=CREATE_CLAIMS, server_default=CREATE_CLAIMS)
    # Whether the first request for a model without a service makes one: as the gateways' settings say, on or off.
    auto_services: Mapped[str] = mapped_column(String(16), default=AS_INSTALLED, server_default=AS_INSTALLED)
    # Registries and parts of them whose images its jobs may use, and `local`; empty: all that the installation allows.
    image_sources: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    # Whether images of registries are named with their digest: optional or required.
    image_digests: Mapped[str] = mapped_column(String(16), default=OPTIONAL_DIGESTS, server_default=OPTIONAL_DIGESTS)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)

    @property
    def required_capabilities(self) -> list[str]:
        """Capabilities that the nodes of its jobs must have, such as a rung of isolation."""
        return list(self.quota.get(DEMANDS, ()))

    @property
    def limits(self) -> dict[str, Any]:
        """The complete quota document, with unset limits as null."""
        return document_of(quota_of(self.quota))


class ProjectUsage(Base):
    """GPU usage by ended attempts of a project in a calendar month (UTC), including deleted jobs."""

    __tablename__ = "project_usage"

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)  # 2026-11
    gpu_seconds: Mapped[float] = mapped_column(Double, default=0.0)
