"""Admission: what can be known to fail fails now, everything else may wait for devices. Safe to do twice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app.domain.errors import CannotFit, NotFound
from app.domain.fitting import refuse_unfitting
from app.domain.job_state import JobState
from app.domain.locations import ReadingRules, candidates, is_hub_id, local_path, readable
from app.domain.resources import request_of
from app.extensions import Database
from app.models import Job
from app.services import lifecycle, nodes

_BATCH = 200


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Why a job cannot ever run; ``cause`` is one of ``domain.errors.ERROR_TYPES``."""

    cause: str
    message: str


def admit(db: Database, job_id: str, rules: ReadingRules, *, actor: str = "coordinator") -> bool:
    """PENDING → QUEUED, or FAILED with what was found; False when the job no longer waits for it."""
    with db.read() as session:
        job = session.get(Job, job_id)
        if job is None or job.state is not JobState.PENDING:
            return False
    # The disk is looked at outside any transaction: a network file system may take its time.
    finding = _missing_input(job.spec, rules) or _impossible_request(db, job.spec)
    with db.write() as session:
        try:
            job = lifecycle.load_for_change(session, job_id)
        except NotFound:
            return False
        if job.state is not JobState.PENDING:
            return False
        if finding is None:
            lifecycle.transition(session, job, JobState.QUEUED, actor=actor, reason="admitted")
        else:
            lifecycle.transition(
                session, job, JobState.FAILED, actor=actor, reason=finding.cause, message=finding.message,
                error_type=finding.cause, error_message=finding.message,
            )  # fmt: skip
        return True


def admit_waiting(db: Database, rules: ReadingRules) -> int:
    """Admit what no message announced; returns how many."""
    with db.read() as session:
        ids = session.scalars(select(Job.id).where(Job.status == JobState.PENDING).order_by(Job.id).limit(_BATCH)).all()
    return sum(admit(db, job_id, rules) for job_id in ids)


def _missing_input(spec: Mapping[str, Any], rules: ReadingRules) -> Finding | None:
    """The first model, data source or script that lies below a root of this machine, but is not there."""
    for location, cause, noun in _inputs(spec):
        path = local_path(location, field="")
        if path is None:
            continue
        # Outside the roots known here nothing can be said: nodes may have other disks than a coordinator.
        possible = [real for real in candidates(path, rules) if readable(real, rules)]
        if possible and _sees_roots(rules) and not any(Path(real).exists() for real in possible):
            return Finding(cause=cause, message=f"{noun} {location} does not exist; put it there, or name another")
    return None


def _inputs(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(location, cause if it is missing, noun)."""
    training = spec["training_config"]
    model_id = training["base_model"]["model_id"]
    if not is_hub_id(model_id):
        yield model_id, "MODEL_NOT_FOUND", "base model"
    for source in spec["data_config"]["sources"]:
        yield source["path"], "DATA_NOT_FOUND", "data source"
    script = training["framework"].get("custom_script_path")
    if script:
        yield script, "INVALID_CONFIG", "custom script"


def _sees_roots(rules: ReadingRules) -> bool:
    """Whether this machine has every configured root; the first one is only the platform's own files."""
    return len(rules.roots) > 1 and all(Path(root).is_dir() for root in rules.roots)


def _impossible_request(db: Database, spec: Mapping[str, Any]) -> Finding | None:
    with db.read() as session:
        request = request_of(spec, has_gpus=nodes.has_gpus(session))
        capacities = nodes.capacities(session, only_ready=False)
    try:
        refuse_unfitting(request, capacities)
    except CannotFit as error:
        return Finding(cause="INVALID_CONFIG", message=error.message)
    return None
