"""Batch and features jobs in the words of their submission, with the counts of their stored shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.spec.inference import BATCH, FEATURES, Inference
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import JobDocument
from app.models import Job, Shard
from app.security.permissions import Caller
from app.services.jobs import details, listing, lookup
from app.services.jobs.details import JobDetails
from app.services.requests.pagination import Page, PageRequest

KINDS = (BATCH, FEATURES)
_COUNTED = ("failed", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True, kw_only=True)
class ShardSums:
    """Sums over the stored shards of a job."""

    shards: int = 0
    records: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class InferenceDetails:
    """A job as `POST /v1/inference` takes it, with its status."""

    details: JobDetails
    counts: ShardSums = field(default_factory=ShardSums)

    @property
    def job(self) -> Job:
        return self.details.job

    @cached_property
    def _document(self) -> JobDocument:
        return self.details.document

    @property
    def _inference(self) -> Inference:
        return self._document.inference or Inference()

    @property
    def model(self) -> dict[str, Any]:
        reference, base = self._inference.model, self._document.training_config.base_model.to_json()
        place = base.pop("model_id", NO_MODEL)
        if reference.service is not None:
            return {"service": reference.service, "quantization": reference.quantization}
        if reference.job_id is None:
            return {"model_uri": place, **base, "quantization": reference.quantization}
        loading: dict[str, Any] = {
            name: base[name] for name in ("dtype", "trust_remote_code", "credentials") if name in base
        }
        checkpoint = {"checkpoint": reference.checkpoint_id} if reference.checkpoint_id else {}
        return {"job_id": reference.job_id, **checkpoint, **loading, "quantization": reference.quantization}

    @property
    def adapter(self) -> bool:
        return self._inference.model.adapter

    @property
    def data_config(self) -> Mapping[str, Any]:
        return self._document.data_config.to_json()

    @property
    def task(self) -> Mapping[str, Any]:
        return self._inference.task.to_json()

    @property
    def output(self) -> Mapping[str, Any]:
        stored = self._document.output_config.to_json()
        names = {"output_path": "path", "max_output_size_mb": "max_size_mb"}
        place = {names.get(name, name): value for name, value in stored.items()}
        return {**place, **self._inference.output.to_json()}

    @property
    def on_error(self) -> Mapping[str, Any]:
        return self._inference.on_error.to_json()

    @property
    def resource_config(self) -> Mapping[str, Any]:
        return self._document.resource_config.to_json()

    @property
    def scheduling_config(self) -> Mapping[str, Any]:
        return self._document.scheduling_config.to_json()

    @property
    def total_shards(self) -> int | None:
        total = self.job.total_steps
        return None if total is None else -(-total // self._inference.output.shard_records)


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[InferenceDetails]:
    """The caller's batch and features jobs that pass every filter."""
    kinds = [filters["kind"]] if "kind" in filters else list(KINDS)
    others = {name: value for name, value in filters.items() if name != "kind"}
    found = listing.page(session, caller, {**others, "kinds": kinds}, request)
    return Page(
        items=_with_counts(session, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def one(session: Session, caller: Caller, job_id: str) -> InferenceDetails:
    """Raises NotFound, also for a job of another kind."""
    job = lookup.find(session, caller, job_id)
    if job.kind not in KINDS:
        raise NotFound(f"{job.id} is of kind {job.kind}, not {' or '.join(KINDS)}; see GET /v1/jobs/{job.id}")
    return _with_counts(session, [details.details(session, job)])[0]


def _with_counts(session: Session, jobs: Sequence[JobDetails]) -> list[InferenceDetails]:
    counted = counts(session, [each.job.id for each in jobs])
    return [InferenceDetails(each, counted.get(each.job.id, ShardSums())) for each in jobs]


def counts(session: Session, ids: Sequence[str]) -> dict[str, ShardSums]:
    """Job → sums over its stored shards; those without one are left out."""
    if not ids:
        return {}
    sums = [func.coalesce(func.sum(Shard.counts[name].as_float()), 0).label(name) for name in _COUNTED]
    query = (
        select(Shard.job_id, func.count().label("shards"), func.sum(Shard.records).label("records"), *sums)
        .where(Shard.job_id.in_(ids))
        .group_by(Shard.job_id)
    )
    return {
        row.job_id: ShardSums(
            shards=row.shards, records=int(row.records), **{name: int(getattr(row, name)) for name in _COUNTED}
        )
        for row in session.execute(query)
    }
