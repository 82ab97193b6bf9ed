"""The facts of a model card, and which part of a location may be published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

ADAPTER, MODEL = "adapter", "model"  # ModelCard.kind; other results are "files"
FILES = "files"


@dataclass(frozen=True, kw_only=True)
class BaseOfModel:
    """``location`` without anything private; ``model_hash`` is known for the result of a job, ``commit`` and
    ``sampled_sha256`` of other models as the last attempt has read them.
    """

    location: str = ""
    is_of_hub: bool = False
    revision: str | None = None
    job_id: str | None = None
    model_hash: str | None = None
    commit: str | None = None
    sampled_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class CardSource:
    """A data source. Digest, size and commit as the last attempt has read them; digest, size and count of an uploaded
    file are known from its upload. ``records_read`` after a preflight.
    """

    location: str
    split: str
    file_id: str | None = None
    sha256: str | None = None
    commit: str | None = None
    size_bytes: int | None = None
    records: int | None = None
    records_read: int | None = None


@dataclass(frozen=True, kw_only=True)
class MeasuredMetric:
    """One metric of a benchmark that was measured of the result; ``passed`` None: nothing is required of it."""

    evaluation_id: str
    benchmark: str
    dataset: str
    metric: str
    value: float | str | None
    stderr: float | str | None
    samples: int | None
    passed: bool | None


@dataclass(frozen=True, kw_only=True)
class CardFile:
    path: str
    size_bytes: int
    sha256: str
    is_weights: bool


@dataclass(frozen=True, kw_only=True)
class Compute:
    """``device_seconds``: of GPUs."""

    device_types: Sequence[str]
    devices: int
    nodes: int
    attempts: int
    seconds: float
    device_seconds: float


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """``settings`` are those of the data and hyperparameters that the document gives."""

    job_id: str
    project: str
    name: str
    kind: str
    training_type: str
    framework: str
    judges: bool
    base: BaseOfModel
    settings: Mapping[str, Any]
    sources: Sequence[CardSource]
    steps: int
    tokens: int
    final_metrics: Mapping[str, Any]
    evaluations: Sequence[MeasuredMetric]
    passed: bool | None
    model_hash: str
    files: Sequence[CardFile]
    compute: Compute
    created_at: datetime
    finished_at: datetime | None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def library(self) -> str | None:
        """What loads it."""
        return {ADAPTER: "peft", MODEL: "transformers"}.get(self.kind)
