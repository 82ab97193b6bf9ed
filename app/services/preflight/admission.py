"""Admission: jobs that are known to fail, fail now; all others are queued. Idempotent.

A job waits, still PENDING, until the uploaded files that it names are inspected; quick checks then run at once. A
built-in trainer's job waits on for a coordinator's inspection of its model and data
(``app.services.preflight.inspections``), unless an equal one passed or this machine can't see them; and a script's job
for that of its container image, if a registry has it, of its packages, or of its code in a repository.
"""

import os.path
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, CannotFit, NotFound, what_to_do
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.feasibility import waits_for_node
from app.domain.spec.document import judging_model
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.rlhf import reward_file, reward_model
from app.domain.spec.inference import TRAINING
from app.domain.spec.locations.code import is_git
from app.domain.spec.locations.images import NEVER, ImageReference
from app.domain.spec.locations.paths import NO_MODEL, ReadingRules, candidates, is_hub_id, local_path, readable
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.rules.image import image_of
from app.domain.spec.rules.packages import resolvable
from app.models import Inspection, Job
from app.services.lifecycle import transitions
from app.services.nodes import device_kinds, project_demands, registry
from app.services.preflight import claims, file_inspections, fingerprints, inspections, programs
from app.services.preflight.file_inspections import FileHold
from app.services.preflight.inspections import InspectionTask, Report

_SOURCES = "sources"  # of a report
_BATCH = 200
_PASSED = {  # by part of the report
    "image": "the registry has the image",
    "packages": "the index has the packages",
    "code": "the repository has the code",
}
INSPECTING = "its model and data are being inspected"
ASKING = "the registry is being asked for its image"
RESOLVING = "the index is being asked for its packages"
FETCHING = "the repository is being asked for its code"


@dataclass(frozen=True, kw_only=True)
class AdmissionFailure:
    """Why a job can never run; ``cause`` is one of ``domain.errors.ERROR_TYPES``."""

    cause: str
    message: str


@dataclass(frozen=True, kw_only=True)
class InspectionSettings:
    """Inspection settings. ``unable``: why this coordinator can't inspect, or empty."""

    rows: int  # records to inspect per source
    waiting: int  # with this many inspections pending, a job skips its own and is left to its node
    unable: str = ""


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """Decision for a job: inspect it (``fingerprint`` identifies equal inspections), or leave it to the node."""

    fingerprint: str = ""
    left_out: str = ""


def admit(
    db: Database,
    job_id: str,
    rules: ReadingRules,
    *,
    inspection: InspectionSettings | None = None,
    actor: str = "coordinator",
) -> bool:
    """PENDING → QUEUED, or FAILED with the reason, or waiting for inspections; False when nothing was changed.

    Without ``inspection`` only the quick checks run.
    """
    with db.read() as session:
        job = session.get(Job, job_id)
        if job is None or job.state is not JobState.PENDING:
            return False
        hold = file_inspections.hold_of(session, job.project, job.document)
    if hold is not None and hold.waiting:
        return _wait(db, job, hold.waiting)
    # Files are checked outside any transaction: a network file system may be slow.
    failure = _unusable_file(hold) or missing_input(job.document, rules.of(job.project)) or _impossible_request(db, job)
    decision = _choose(job, rules, inspection) if inspection is not None and failure is None else None
    with db.write() as session:
        try:
            job = transitions.load_for_change(session, job_id)
        except NotFound:
            return False
        if job.state is not JobState.PENDING:
            return False
        if failure is not None:
            _fail(session, job, failure, actor)
        elif inspection is None or decision is None:
            _admit(session, job, actor)
        else:
            return _apply(session, job, decision, inspection, actor)
        return True


def admit_waiting(db: Database, rules: ReadingRules, *, inspection: InspectionSettings | None = None) -> int:
    """Admit jobs whose admission message was lost; returns how many."""
    with db.query() as connection:
        ids = connection.scalars(
            select(Job.id)
            .where(
                Job.status == JobState.PENDING,
                ~exists().where(Inspection.job_id == Job.id),
                ~file_inspections.waits_for_file(),
            )
            .order_by(Job.id)
            .limit(_BATCH)
        ).all()
    return len(list(admit_each(db, ids, rules, inspection=inspection)))


def admit_each(
    db: Database, job_ids: Iterable[str], rules: ReadingRules, *, inspection: InspectionSettings | None = None
) -> Iterator[str]:
    """Admit jobs one by one; yields those that changed.

    A failure with one job does not block the others; the first error is raised at the end.
    """
    failures = []
    for job_id in job_ids:
        try:
            if admit(db, job_id, rules, inspection=inspection):
                yield job_id
        except Exception as error:  # noqa: BLE001 – jobs are independent; the error is raised below
            failures.append(error)
    if failures:
        raise failures[0]


def conclude(db: Database, work: InspectionTask, report: Report, *, actor: str = "coordinator") -> bool:
    """Store an inspection's result, and admit or fail its job; False when another process has taken it over."""
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


def inputs(document: JobDocument) -> Iterator[tuple[str, str, str]]:
    """(location, cause if missing, noun) of all inputs that must exist here, except models that may be on a hub."""
    training = document.training_config
    base = training.base_model
    for location, noun in ((base.model_id, "base model"), (base.tokenizer_id, "tokenizer")):
        if location and not may_be_on_hub(base, location) and not is_upload(location):
            yield location, "MODEL_NOT_FOUND", noun
    for source in document.data_config.sources:
        if not is_upload(source.path):
            yield source.path, "DATA_NOT_FOUND", "data source"
    for location, noun in programs.locations(training.framework):
        yield location, "INVALID_CONFIG", noun
    image = _image(document)
    if image is not None and image.is_local:
        yield image.name, "INVALID_CONFIG", "image"
    custom = training.framework.type == parsing.CUSTOM
    values = {} if custom else training.hyperparameters
    judge = reward_file(values)
    if judge:
        yield judge, "INVALID_CONFIG", "reward"
    model = judging_model(document)
    if model and not is_hub_id(model):
        yield model, "MODEL_NOT_FOUND", "reward model"


def may_be_on_hub(base_model: BaseModel, model_id: str) -> bool:
    """Whether the id may name a hub model rather than a directory of this cluster."""
    return is_hub_id(model_id) and base_model.source != "local"


def _wait(db: Database, job: Job, reason: str) -> bool:
    """Say what the job waits for. The end of that inspection is a change, after which waiting jobs are admitted."""
    if job.pending_reason == reason:
        return False
    with db.write() as session:
        try:
            locked = transitions.load_for_change(session, job.id)
        except NotFound:
            return False
        if locked.state is not JobState.PENDING:
            return False
        locked.pending_reason = reason
    return True


def _unusable_file(hold: FileHold | None) -> AdmissionFailure | None:
    return AdmissionFailure(cause=hold.cause, message=hold.message) if hold is not None else None


def _choose(job: Job, rules: ReadingRules, inspection: InspectionSettings) -> _Decision | None:
    """The decision for a job; None: this kind of job is not inspected."""
    if job.framework == parsing.CUSTOM and not _asks_elsewhere(job.document):
        return None
    if job.kind != TRAINING:
        return _Decision(left_out=inspections.NOT_TRAINING.format(job.kind))
    if inspection.unable:
        return _Decision(left_out=inspection.unable)
    if job.framework == parsing.CUSTOM:
        return _Decision()  # a tag may name another image at any time, and an index have other packages
    for location, _, noun in inputs(job.document):
        # URIs without a local path are resolved by the inspection itself.
        if _is_path(location) and fingerprints.seen_here(location, rules) is None:
            return _Decision(left_out=f"this coordinator can't access the {noun} {location}")
    return _Decision(fingerprint=fingerprint_of(job.project, job.document, rules, inspection))


def fingerprint_of(project: str, document: JobDocument, rules: ReadingRules, inspection: InspectionSettings) -> str:
    """Fingerprint of a document whose inputs are all on this machine; empty for others."""
    base = document.training_config.base_model
    if base.source == "hub":
        return ""  # a local directory of the same name is not the model
    values = document.training_config.hyperparameters
    named = (base.model_id, base.tokenizer_id, reward_model(values))
    models = [name for name in named if name and name != NO_MODEL]
    judge = reward_file(values)
    judges = [judge] if judge else []
    locations = [*models, *(source.path for source in document.data_config.sources), *judges]
    return fingerprints.fingerprint(document, locations, rules, project, inspection.rows)


def _apply(session: Session, job: Job, decision: _Decision, inspection: InspectionSettings, actor: str) -> bool:
    """Under the job's lock: use a cached report, or request an inspection unless too many are pending."""
    report: Report | None = {"left_out": [decision.left_out]} if decision.left_out else None
    report = report or inspections.remembered(session, decision.fingerprint)
    if report is None and inspections.waiting_before(session, decision.fingerprint) >= inspection.waiting:
        report = {"left_out": [f"{inspection.waiting} other jobs wait for their inspection"]}
    if report is not None:
        _act_on(session, job, report, actor)
        return True
    if not inspections.request_for_job(session, job, decision.fingerprint):
        return False
    job.pending_reason = INSPECTING
    if job.framework == parsing.CUSTOM:
        job.pending_reason = _script_waits_for(job.document)
    return True


def _without_content(report: Report) -> Report:
    """Without the records themselves: events are kept, exported and sent to others."""
    if not report.get(_SOURCES):
        return report
    kept = [{name: value for name, value in each.items() if name != "first_records"} for each in report[_SOURCES]]
    return {**report, _SOURCES: kept}


def _act_on(session: Session, job: Job, report: Report, actor: str) -> None:
    shown = _without_content({name: value for name, value in report.items() if name != "fingerprint"})
    transitions.record_event(
        session,
        job.id,
        EventType.PREFLIGHT,
        actor=actor,
        reason=inspections.verdict_of(report),
        message=summary(report),
        data=shown,
    )
    if report.get("errors"):
        first = report["errors"][0]
        _fail(session, job, AdmissionFailure(cause=first["error_type"], message=first["message"]), actor)
    else:
        _admit(session, job, actor)


def summary(report: Report) -> str:
    """The report as an event's message."""
    parts = [error["message"] for error in report.get("errors", [])]
    parts += report.get("warnings", [])
    parts += [f"left to the node: {reason}" for reason in report.get("left_out", [])]
    passed = next((text for name, text in _PASSED.items() if report.get(name)), "model and data are valid")
    return "; ".join(parts) or passed


def _admit(session: Session, job: Job, actor: str) -> None:
    transitions.transition(session, job, JobState.QUEUED, actor=actor, reason="admitted", pending_reason="")


def _fail(session: Session, job: Job, failure: AdmissionFailure, actor: str) -> None:
    transitions.transition(
        session,
        job,
        JobState.FAILED,
        actor=actor,
        reason=failure.cause,
        message=failure.message,
        error_type=failure.cause,
        error_message=". ".join(filter(None, (failure.message.rstrip("."), what_to_do(failure.cause)))),
    )


def missing_input(document: JobDocument, rules: ReadingRules) -> AdmissionFailure | None:
    """The first model, data source, script or claim below a root of this machine that does not exist."""
    for location, cause, noun in inputs(document):
        try:
            path = local_path(location, field="")
        except BadSpec:
            continue  # submission refuses these; the node reports the error
        if path is None:
            continue
        # Paths outside the roots known here are not checked: nodes may have other disks than a coordinator.
        possible = [real for real in candidates(path, rules) if readable(real, rules)]
        if not possible or not sees_roots(rules):
            continue
        there = [real for real in possible if fingerprints.exists(real, rules)]
        problem = programs.unusable(document, noun, there) if there else "does not exist; put it there, or name another"
        if problem:
            return AdmissionFailure(cause=cause, message=f"{noun} {location} {problem}")
    claim = claims.missing_claim(document, rules)
    return AdmissionFailure(cause="INVALID_CONFIG", message=claim) if claim else None


def _image(document: JobDocument) -> ImageReference | None:
    try:
        return image_of(document)
    except BadSpec:  # submission refuses these; the node reports the error
        return None


def _is_in_registry(document: JobDocument) -> bool:
    image = _image(document)
    return image is not None and not image.is_local and document.resource_config.image.pull_policy != NEVER


def _asks_elsewhere(document: JobDocument) -> bool:
    """Whether a script's job needs what a registry, an index or a repository may lack."""
    return (
        _is_in_registry(document)
        or resolvable(document)
        or is_git(document.training_config.framework.custom_code_dir or "")
    )


def _script_waits_for(document: JobDocument) -> str:
    if is_git(document.training_config.framework.custom_code_dir or ""):
        return FETCHING
    return RESOLVING if resolvable(document) else ASKING


def _is_path(location: str) -> bool:
    try:
        return local_path(location, field="") is not None
    except BadSpec:
        return False


def sees_roots(rules: ReadingRules) -> bool:
    """Whether this machine has every configured root; the first one holds the platform's own files."""
    return len(rules.roots) > 1 and all(os.path.isdir(root) for root in rules.roots)  # noqa: PTH112 – never raises


def _impossible_request(db: Database, job: Job) -> AdmissionFailure | None:
    if waits_for_node(job.document):
        return None
    with db.read() as session:
        seen, capacities = device_kinds.gpus(session), registry.capacities(session, only_ready=False)
        demand = project_demands.of_project(session, job.project)
    try:
        device_kinds.fitting_request(job.document, seen, capacities, demand)
    except CannotFit as error:
        message = project_demands.explained(error, demand).message
        return AdmissionFailure(cause="INVALID_CONFIG", message=message)
    return None
