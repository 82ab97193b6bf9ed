"""Models with names: base models that an administrator has registered, and fine-tuned models."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now


class RegisteredModel(Base):
    """A fine-tuned model has its row from the submission of its job on; it can be used once that is COMPLETED."""

    __tablename__ = "registered_model"
    __table_args__ = (
        CheckConstraint("kind IN ('base', 'fine_tune')", name="known_kind"),
        CheckConstraint("kind = 'base' OR job_id IS NOT NULL", name="fine_tune_has_job"),
        CheckConstraint("kind = 'fine_tune' OR location IS NOT NULL", name="base_has_location"),
    )

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    project: Mapped[str | None] = mapped_column(ForeignKey("project.name"), index=True)  # None: for all projects
    location: Mapped[str | None] = mapped_column(Text)  # of a base model, as in base_model.model_id
    base: Mapped[str | None] = mapped_column(String(255))  # the model that was fine-tuned, as it was named
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), unique=True)
    created_by: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    removed_at: Mapped[datetime | None]  # it is listed for those who still name it, and refuses new work
