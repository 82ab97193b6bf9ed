"""The columns of objects that clients of Kubernetes keep here as they describe them."""

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class Manifest:
    """Of one project, or with an empty one of the whole cluster."""

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    id: Mapped[str] = mapped_column(ID, unique=True)
    spec: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    annotations: Mapped[dict[str, Any]] = mapped_column(default=dict)
    version: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)


class TrainingRuntime(Manifest, Base):
    """What training jobs of Kubernetes' kind have in common: kept for those of OME that name it."""

    __tablename__ = "training_runtime"


class BaseModel(Manifest, Base):
    """A model that training jobs of OME begin with and name, with the place where it is stored."""

    __tablename__ = "base_model"
