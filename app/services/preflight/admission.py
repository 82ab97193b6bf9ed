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
from app.domain.spec.locations.code import is_git
from app.domain.spec.locations.paths import NO_MODEL, ReadingRules, candidates, is_hub_id, local_path, readable
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import CLAIM, BaseModel, JobDocument
from app.domain.spec.rules.packages import resolvable
from app.models import Inspection, Job
from app.services.lifecycle import transitions
from app.services.nodes.capacity import ClusterInventory
from app.services.preflight import (
    file_inspections,
    fingerprints,
    inference_inputs,
    inspections,
    programs,
    reports,
    volume_claims,
)
from app.services.preflight.inspections import InspectionTask, Report
from app.services.preflight.queueing import ACTOR, ADMITTED, Failed, Gathered

_BATCH = 200
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


@dataclass(frozen=True)
class _Looks:
    """What jobs are checked by."""

    rules: ReadingRules
    inspection: InspectionSettings | None
    inventory: ClusterInventory


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """Decision for a job: inspect it (``fingerprint`` identifies equal inspections), or leave it to the node."""

    fingerprint: str = ""
    left_out: str = ""
    waits_for: str = INSPECTING


def admit_waiting(
    db: Database,
    rules: ReadingRules,
    *,
    inspection: InspectionSettings | None = None,
    inventory: ClusterInventory | None = None,
    failed: Failed | None = None,
) -> int:
    """Admit jobs whose admission message was lost, and those that have none; returns how many."""
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
    if not ids:
        return 0
    return len(list(admit_each(db, ids, rules, inspection=inspection, inventory=inventory, failed=failed)))


def admit_each(
    db: Database,
    job_ids: Iterable[str],
    rules: ReadingRules,
    *,
    inspection: InspectionSettings | None = None,
    inventory: ClusterInventory | None = None,
    failed: Failed | None = None,
) -> Iterator[str]:
    """PENDING → QUEUED, or FAILED with the reason, or waiting for inspections; yields the jobs that changed.

    Jobs that nothing holds are queued together, but never wait for the check of a file that may hang. A failure with
    one job does not block the others: it is reported to ``failed``, without which the first error is raised at the end.
    Without ``inspection`` only the quick checks run. ``inventory``: this process's, which spares reading the nodes.
    """
    looks = _Looks(rules, inspection, inventory or ClusterInventory())
    errors: list[Exception] = []
    failed = failed or (lambda _ids, error: errors.append(error))
    with db.read() as session:
        waiting = select(Job).where(Job.id.in_(list(job_ids)), Job.status == JobState.PENDING).order_by(Job.id)
        jobs = session.scalars(waiting).all()
    gathered, seen = Gathered(db, failed), set[str]()
    for job in jobs:
        try:
            document = job.document
            files = _files(job.project, document)
            if gathered.is_due or not files <= seen:
                yield from gathered.queue()
            has_changed = _settled(db, job, document, looks)
        except Exception as error:  # noqa: BLE001 – jobs are independent
            failed([job.id], error)
            continue
        seen |= files
        if has_changed is None:
            gathered.add(job.id)
        elif has_changed:
            yield job.id
    yield from gathered.queue()
    if errors:
        raise errors[0]


def _files(project: str, document: JobDocument) -> set[str]:
    """Paths and claims on disks, any of which may hang, that an admission reads."""
    found = {location for location, _, _ in inputs(document) if _is_path(location)}
    return found | {f"{project}/{mount.claim}" for mount in document.resource_config.mounts if mount.type == CLAIM}


def _settled(db: Database, job: Job, document: JobDocument, looks: _Looks) -> bool | None:
    """Whether the job was failed, or has begun to wait for something; None: nothing holds it."""
    with db.read() as session:
        hold = file_inspections.hold_of(session, job.project, document)
    if hold is not None and hold.waiting:
        return _wait(db, job, hold.waiting)
    # Files are checked outside any transaction: a network file system may be slow.
    if hold is not None:
        failure: AdmissionFailure | None = AdmissionFailure(cause=hold.cause, message=hold.message)
    else:
        failure = missing_input(document, looks.rules.of(job.project))
        failure = failure or _impossible_request(db, job.project, document, looks.inventory)
    inspection = looks.inspection
    decision = _choose(job, document, looks.rules, inspection) if inspection is not None and failure is None else None
    if failure is None and decision is None:
        return None
    with db.write() as session:
        locked = _still_pending(session, job.id)
        if locked is None:
            return False
        if inspection is not None and decision is not None:
            return _apply(session, locked, decision, inspection, ACTOR)
        if failure is not None:
            _fail(session, locked, failure, ACTOR)
        return True


def _still_pending(session: Session, job_id: str) -> Job | None:
    """The job with its row locked; None when it is gone, or not PENDING any more."""
    try:
        job = transitions.load_for_change(session, job_id)
    except NotFound:
        return None
    return job if job.state is JobState.PENDING else None


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
    for reference, _ in programs.images_of(document):
        if reference.is_local:
            yield reference.name, "INVALID_CONFIG", "image"
    custom = training.framework.type == parsing.CUSTOM
    values = {} if custom else training.hyperparameters
    judge = reward_file(values)
    if judge:
        yield judge, "INVALID_CONFIG", "reward"
    yield from inference_inputs.benchmark_code(document)
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
        locked = _still_pending(session, job.id)
        if locked is None:
            return False
        locked.pending_reason = reason
    return True


def _choose(job: Job, document: JobDocument, rules: ReadingRules, inspection: InspectionSettings) -> _Decision | None:
    """The decision for a job; None: this kind of job is not inspected."""
    if job.framework == parsing.CUSTOM and not _asks_elsewhere(document):
        return None
    if reason := inference_inputs.why_not_read(document):
        return _Decision(left_out=reason)
    if inspection.unable:
        return _Decision(left_out=inspection.unable)
    if job.framework == parsing.CUSTOM:
        # A tag may name another image at any time, and an index have other packages.
        return _Decision(waits_for=_script_waits_for(document))
    for location, _, noun in inputs(document):
        # URIs without a local path are resolved by the inspection itself.
        if _is_path(location) and fingerprints.seen_here(location, rules) is None:
            return _Decision(left_out=f"this coordinator can't access the {noun} {location}")
    return _Decision(fingerprint=fingerprint_of(job.project, document, rules, inspection))


def fingerprint_of(project: str, document: JobDocument, rules: ReadingRules, inspection: InspectionSettings) -> str:
    """Fingerprint of a document whose inputs are all on this machine; empty for others."""
    base = document.training_config.base_model
    # A local directory of the same name is not the model, a tag may name another image at any time, and files of the
    # harness's tasks name others.
    if base.source == "hub" or programs.asks_registries(document) or inference_inputs.measures_tasks(document):
        return ""
    values = document.training_config.hyperparameters
    named = (base.model_id, base.tokenizer_id, reward_model(values))
    models = [name for name in named if name and name != NO_MODEL]
    judge = reward_file(values)
    judges = [judge] if judge else []
    locations = [*models, *(source.path for source in document.data_config.sources), *judges]
    locations += [location for location, _, _ in inference_inputs.benchmark_code(document)]
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
    job.pending_reason = decision.waits_for
    return True


def _act_on(session: Session, job: Job, report: Report, actor: str) -> None:
    shown = reports.without_content({name: value for name, value in report.items() if name != "fingerprint"})
    transitions.record_event(
        session,
        job.id,
        EventType.PREFLIGHT,
        actor=actor,
        reason=inspections.verdict_of(report),
        message=reports.summary(report),
        data=shown,
    )
    if report.get("errors"):
        first = report["errors"][0]
        _fail(session, job, AdmissionFailure(cause=first["error_type"], message=first["message"]), actor)
    else:
        _admit(session, job, actor)


def _admit(session: Session, job: Job, actor: str) -> None:
    transitions.transition(session, job, JobState.QUEUED, actor=actor, reason=ADMITTED, pending_reason="")


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
    claim = volume_claims.missing_claim(document, rules)
    return AdmissionFailure(cause="INVALID_CONFIG", message=claim) if claim else None


def _asks_elsewhere(document: JobDocument) -> bool:
    """Whether a script's job needs what a registry, an index or a repository may lack."""
    return (
        programs.asks_registries(document)
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


def _impossible_request(
    db: Database, project: str, document: JobDocument, inventory: ClusterInventory
) -> AdmissionFailure | None:
    if waits_for_node(document):
        return None
    try:
        with db.read() as session:
            inventory.request(session, document, project)
    except CannotFit as error:
        return AdmissionFailure(cause="INVALID_CONFIG", message=error.message)
    return None
