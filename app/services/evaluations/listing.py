"""Evaluations as users see them: one, or a page of them, with what they have measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.evaluations import catalog, documents, requirements
from app.domain.spec.inference import EVALUATION, Inference
from app.models import Job
from app.security.permissions import Caller
from app.services.attempts import evaluation_verdicts
from app.services.attempts.evaluation_verdicts import RESULTS
from app.services.inference.listing import InferenceDetails
from app.services.jobs import listing, lookup
from app.services.jobs.details import JobDetails, details_of
from app.services.requests.pagination import Page, PageRequest


@dataclass(frozen=True, kw_only=True)
class EvaluationDetails:
    """An evaluation is a job; ``details`` are that job's."""

    details: JobDetails

    @property
    def job(self) -> Job:
        return self.details.job

    @cached_property
    def section(self) -> Inference:
        return self.details.document.inference or Inference()

    @property
    def model(self) -> dict[str, Any]:
        """As in a request, without secrets."""
        return InferenceDetails(self.details).model

    @property
    def data_config(self) -> Mapping[str, Any]:
        """Without the sources, which are the datasets of the benchmarks."""
        return self.details.document.data_config.without("sources").to_json()

    @property
    def resource_config(self) -> Mapping[str, Any]:
        return self.details.document.resource_config.to_json()

    @property
    def scheduling_config(self) -> Mapping[str, Any]:
        return self.details.document.scheduling_config.to_json()

    @property
    def benchmarks(self) -> list[dict[str, Any]]:
        return documents.as_asked(self.details.document)

    @property
    def results(self) -> dict[str, Any]:
        """By name of a benchmark; empty until the evaluation has completed."""
        found = (self.job.report or {}).get(RESULTS) or {}
        names = {catalog.label(each.name): each.name for each in self.section.benchmarks}
        return {names.get(label, label): result for label, result in found.items()}

    @property
    def require(self) -> list[dict[str, Any]]:
        return [each.to_json() for each in self.section.require]

    @property
    def verdicts(self) -> Sequence[dict[str, Any]]:
        """Its requirements, each with whether it passed; empty until the evaluation has completed."""
        return evaluation_verdicts.verdicts_of(self.job.report)

    @property
    def passed(self) -> bool | None:
        return requirements.all_passed(self.verdicts)


def find(session: Session, caller: Caller, evaluation_id: str) -> Job:
    """The job of an evaluation. Raises NotFound also for a job of another kind."""
    try:
        job = lookup.find(session, caller, evaluation_id)
    except NotFound as error:
        error.message = f"no evaluation {evaluation_id[:64]}"
        raise
    if job.kind != EVALUATION:
        raise NotFound(f"{job.id} is of kind {job.kind}, not {EVALUATION}; see GET /v1/jobs/{job.id}")
    return job


def one(session: Session, caller: Caller, evaluation_id: str) -> EvaluationDetails:
    job = find(session, caller, evaluation_id)
    return EvaluationDetails(details=details_of(session, [job])[0])


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[EvaluationDetails]:
    """The caller's evaluations that pass every filter; ``job_id`` is the job whose model was measured."""
    wanted = {**filters, "kind": EVALUATION}
    if "job_id" in wanted:
        wanted["evaluated_job_id"] = wanted.pop("job_id")
    found = listing.page(session, caller, wanted, request)
    return Page(
        items=[EvaluationDetails(details=each) for each in found.items],
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )
