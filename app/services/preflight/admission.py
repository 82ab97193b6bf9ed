"""Admission: what can be known to fail fails now, everything else may wait for devices. Safe to do twice.

Quick checks are done at once. A built-in trainer's job then waits, still PENDING, for a coordinator's inspection of its
model and data (``app.services.preflight.inspections``), unless the same has passed before or this machine can't tell.
"""

import os.path
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, CannotFit, NotFound
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.resources import request_of
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.rlhf import reward_file, reward_model
from app.domain.spec.locations.paths import NO_MODEL, ReadingRules, candidates, is_hub_id, local_path, readable
from app.models import Inspection, Job
from app.services.lifecycle import transitions
from app.services.nodes import registry
from app.services.preflight import fingerprints, inspections
from app.services.preflight.inspections import Report, Work

_BATCH = 200
LOOKING = "its model and data are being looked at"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Why a job cannot ever run; ``cause`` is one of ``domain.errors.ERROR_TYPES``."""

    cause: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Looking:
    """Whether model and data are looked at here, and how closely. ``unable``: why this coordinator can't, or empty."""

    rows: int
    waiting: int  # with so many different looks before it, a job is left to its node
    unable: str = ""


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What is to be done about one job: look (``fingerprint`` finds the same look), or leave it to the node."""

    fingerprint: str = ""
    left_out: str = ""


def admit(
    db: Database, job_id: str, rules: ReadingRules, *, looking: Looking | None = None, actor: str = "coordinator"
) -> bool:
    """PENDING → QUEUED, or FAILED with what was found, or handed on to an inspection; False when nothing was changed.

    Without ``looking`` the quick checks are all.
    """
    with db.read() as session:
        job = session.get(Job, job_id)
        if job is None or job.state is not JobState.PENDING:
            return False
    # The disk is looked at outside any transaction: a network file system may take its time.
    finding = missing_input(job.spec, rules) or _impossible_request(db, job.spec)
    look = _look(job, rules, looking) if looking is not None and finding is None else None
    with db.write() as session:
        try:
            job = transitions.load_for_change(session, job_id)
        except NotFound:
            return False
        if job.state is not JobState.PENDING:
            return False
        if finding is not None:
            _fail(session, job, finding, actor)
        elif looking is None or look is None:
            _let_in(session, job, actor)
        else:
            return _decide(session, job, look, looking, actor)
        return True


def admit_waiting(db: Database, rules: ReadingRules, *, looking: Looking | None = None) -> int:
    """Admit what no message announced; returns how many."""
    with db.read() as session:
        ids = session.scalars(
            select(Job.id)
            .where(Job.status == JobState.PENDING, ~exists().where(Inspection.job_id == Job.id))
            .order_by(Job.id)
            .limit(_BATCH)
        ).all()
    return len(list(admit_each(db, ids, rules, looking=looking)))


def admit_each(
    db: Database, job_ids: Iterable[str], rules: ReadingRules, *, looking: Looking | None = None
) -> Iterator[str]:
    """Admit them one by one; yields those with which something was changed.

    What goes wrong with one job keeps none of the others waiting; the first of these is raised at last.
    """
    failures = []
    for job_id in job_ids:
        try:
            if admit(db, job_id, rules, looking=looking):
                yield job_id
        except Exception as error:  # noqa: BLE001 – each job is on its own; nothing is lost
            failures.append(error)
    if failures:
        raise failures[0]


def conclude(db: Database, work: Work, report: Report, *, actor: str = "coordinator") -> bool:
    """Write an inspection's result down, and let its job in or fail it; False when somebody else has the inspection."""
    with db.write() as session:
        job = None
        if work.job_id is not None:
            try:
                job = transitions.load_for_change(session, work.job_id)
            except NotFound:
                return False
        if not inspections.close(session, work, report):
            return False
        if job is not None and job.state is JobState.PENDING:
            _act_on(session, job, report, actor)
        return True


def inputs(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(location, cause if it is missing, noun) of all that must be there, but for models that a hub may have."""
    training = spec["training_config"]
    base = training["base_model"]
    for location, noun in ((base["model_id"], "base model"), (base.get("tokenizer_id"), "tokenizer")):
        if location and not may_be_on_hub(base, location):
            yield location, "MODEL_NOT_FOUND", noun
    for source in spec["data_config"]["sources"]:
        yield source["path"], "DATA_NOT_FOUND", "data source"
    script = training["framework"].get("custom_script_path")
    if script:
        yield script, "INVALID_CONFIG", "custom script"
    if code := training["framework"].get("custom_code_dir"):
        yield code, "INVALID_CONFIG", "code directory"
    custom = training["framework"]["type"] == parsing.CUSTOM
    values = {} if custom else training.get("hyperparameters") or {}
    judge = reward_file(values)
    if judge:
        yield judge, "INVALID_CONFIG", "reward"
    model = reward_model(values)
    if model and not is_hub_id(model):
        yield model, "MODEL_NOT_FOUND", "reward model"


def may_be_on_hub(base_model: Mapping[str, Any], model_id: str) -> bool:
    """Whether the id may name a model of a hub rather than a directory of this cluster."""
    return is_hub_id(model_id) and base_model.get("source") != "local"


def _look(job: Job, rules: ReadingRules, looking: Looking) -> _Look | None:
    """None: this kind of job is not looked at."""
    if job.framework == parsing.CUSTOM:
        return None
    if looking.unable:
        return _Look(left_out=looking.unable)
    for location, _, noun in inputs(job.spec):
        # URIs that no path stands behind are resolved by the inspection itself.
        if _is_path(location) and fingerprints.seen_here(location, rules) is None:
            return _Look(left_out=f"this coordinator does not see the {noun} {location}")
    return _Look(fingerprint=fingerprint_of(job.project, job.spec, rules, looking))


def fingerprint_of(project: str, spec: Mapping[str, Any], rules: ReadingRules, looking: Looking) -> str:
    """Of a document whose inputs all lie on this machine; empty for others."""
    base = spec["training_config"]["base_model"]
    if base.get("source") == "hub":
        return ""  # a directory of the same name says nothing
    values = spec["training_config"].get("hyperparameters") or {}
    named = (base["model_id"], base.get("tokenizer_id"), reward_model(values))
    models = [name for name in named if name and name != NO_MODEL]
    judge = reward_file(values)
    judges = [judge] if judge else []
    locations = [*models, *(source["path"] for source in spec["data_config"]["sources"]), *judges]
    return fingerprints.fingerprint(spec, locations, rules, project, looking.rows)


def _decide(session: Session, job: Job, look: _Look, looking: Looking, actor: str) -> bool:
    """Under the job's lock: what is known already is used, what is not is asked for, unless too many wait."""
    report: Report | None = {"left_out": [look.left_out]} if look.left_out else None
    report = report or inspections.remembered(session, look.fingerprint)
    if report is None and inspections.waiting_before(session, look.fingerprint) >= looking.waiting:
        report = {"left_out": [f"{looking.waiting} other jobs wait for their inspection"]}
    if report is not None:
        _act_on(session, job, report, actor)
        return True
    if not inspections.demand(session, job, look.fingerprint):
        return False
    job.pending_reason = LOOKING
    return True


def _act_on(session: Session, job: Job, report: Report, actor: str) -> None:
    shown = {name: value for name, value in report.items() if name != "fingerprint"}
    transitions.record_event(
        session, job.id, EventType.PREFLIGHT, actor=actor, reason=inspections.verdict_of(report),
        message=summary(report), data=shown,
    )  # fmt: skip
    if report.get("errors"):
        first = report["errors"][0]
        _fail(session, job, Finding(cause=first["error_type"], message=first["message"]), actor)
    else:
        _let_in(session, job, actor)


def summary(report: Report) -> str:
    """What a report says, in the words of an event's message."""
    said = [error["message"] for error in report.get("errors", [])]
    said += report.get("warnings", [])
    said += [f"left to the node: {reason}" for reason in report.get("left_out", [])]
    return "; ".join(said) or "model and data are as they should be"


def _let_in(session: Session, job: Job, actor: str) -> None:
    transitions.transition(session, job, JobState.QUEUED, actor=actor, reason="admitted", pending_reason="")


def _fail(session: Session, job: Job, finding: Finding, actor: str) -> None:
    transitions.transition(
        session, job, JobState.FAILED, actor=actor, reason=finding.cause, message=finding.message,
        error_type=finding.cause, error_message=finding.message,
    )  # fmt: skip


def missing_input(spec: Mapping[str, Any], rules: ReadingRules) -> Finding | None:
    """The first model, data source or script that lies below a root of this machine, but is not there."""
    for location, cause, noun in inputs(spec):
        try:
            path = local_path(location, field="")
        except BadSpec:
            continue  # submit lets none in; the node says what is wrong with it
        if path is None:
            continue
        # Outside the roots known here nothing can be said: nodes may have other disks than a coordinator.
        possible = [real for real in candidates(path, rules) if readable(real, rules)]
        if possible and sees_roots(rules) and not any(fingerprints.exists(real, rules) for real in possible):
            return Finding(cause=cause, message=f"{noun} {location} does not exist; put it there, or name another")
    return None


def _is_path(location: str) -> bool:
    try:
        return local_path(location, field="") is not None
    except BadSpec:
        return False


def sees_roots(rules: ReadingRules) -> bool:
    """Whether this machine has every configured root; the first one is only the platform's own files."""
    return len(rules.roots) > 1 and all(os.path.isdir(root) for root in rules.roots)  # noqa: PTH112 – never raises


def _impossible_request(db: Database, spec: Mapping[str, Any]) -> Finding | None:
    with db.read() as session:
        request = request_of(spec, has_gpus=registry.has_gpus(session))
        capacities = registry.capacities(session, only_ready=False)
    try:
        refuse_unfitting(request, capacities)
    except CannotFit as error:
        return Finding(cause="INVALID_CONFIG", message=error.message)
    return None
