"""A project: whom a row belongs to."""

from datetime import datetime

from sqlalchemy import String, text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now

DEFAULT_PROJECT = "default"


class Project(Base):
    __tablename__ = "project"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    description: Mapped[str] = mapped_column(String(255), default="", server_default=text("''"))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
