"""Permissions of other projects to ask fine-tuned models."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class ModelPermission(Base):
    """One project may ask what ``name`` means, a fine-tuned model or one of its checkpoints; nothing else."""

    __tablename__ = "model_permission"
    __table_args__ = (
        Index("uq_model_permission_project_name", "project", "name", unique=True),
        # Ids sort by creation.
        Index("ix_model_permission_name_id", "name", "id"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    model: Mapped[str] = mapped_column(ForeignKey("registered_model.name", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(255))
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))  # that may ask
    created_by: Mapped[str] = mapped_column(ID)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
