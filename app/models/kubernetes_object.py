"""Objects that Kubernetes clients store as manifests."""

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class KubernetesObject:
    """Columns of a manifest in a project, or cluster-scoped with an empty project."""

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    id: Mapped[str] = mapped_column(ID, unique=True)
    spec: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, str]] = mapped_column(default=dict)
    annotations: Mapped[dict[str, str]] = mapped_column(default=dict)
    version: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)


class TrainingRuntime(KubernetesObject, Base):
    """A template that OME training jobs refer to by name."""

    __tablename__ = "training_runtime"


class StoredBaseModel(KubernetesObject, Base):
    """A base model with its storage location, which OME training jobs refer to by name."""

    __tablename__ = "base_model"
