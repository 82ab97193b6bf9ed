"""The memory estimate of a job: the configuration of its model is read where this process may read it."""

import json
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, CannotFit
from app.domain.lifecycle.states import TERMINAL
from app.domain.memory.estimate import MemoryEstimate
from app.domain.memory.fit import Fit, fit_of
from app.domain.memory.known_models import known_config
from app.domain.memory.ways_out import WayOut
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.spec.document import is_custom
from app.domain.spec.inference import TRAINING
from app.domain.spec.locations.paths import ReadingRules, candidates, is_hub_id, job_of_path, local_path, readable
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.role_documents import training_of
from app.domain.spec.rules.model import is_result
from app.models import Job
from app.services.jobs.details import JobDetails
from app.services.nodes.device_kinds import request_of_job
from app.services.requests.control_plane import ControlPlane

_FILE, _MOST_BYTES = "config.json", 2**20
_ROLE = "tasks.0"  # the role that trains, of a job with rollouts
_UNCOUNTED = "the rollouts, each of which holds the model and its completions, are not counted"
_MOST_JOBS = 8  # of which each trained the result of the one before
FIELD, _FORCE = "resource_config", "resource_config.force_fit"


_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What a document or a file that nothing foresaw may raise.
_ODD = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Unknown:
    reason: str


@dataclass(frozen=True, kw_only=True)
class FitFacts:
    """What the database says of a training: ``base`` is the model whose configuration counts, or why there is none.

    Files are read after the transaction: a storage root that hangs must not hold its connection. ``request`` is that
    of the role that trains, where the job ``has_rollouts``.
    """

    document: JobDocument
    base: BaseModel | _Unknown
    request: Request
    nodes: Sequence[NodeCapacity]
    reading: ReadingRules
    has_rollouts: bool = False


def asked_of(
    session: Session, document: JobDocument, request: Request, nodes: Sequence[NodeCapacity], reading: ReadingRules
) -> FitFacts | None:
    """None for jobs that train nothing of ours; ``reading`` are the rules of the job's project."""
    if document.kind != TRAINING or is_custom(document):
        return None
    base = _base(session, document.training_config.base_model, reading)
    return FitFacts(
        document=training_of(document),
        base=base,
        request=_of_training(request),
        nodes=nodes,
        reading=reading,
        has_rollouts=bool(request.roles),
    )


def _of_training(request: Request) -> Request:
    """The instances of the role that trains are the nodes of the training."""
    trains = next(iter(request.roles), None)
    return request if trains is None else replace(trains.each, node_count=trains.count)


def asked_of_stored(session: Session, plane: ControlPlane, job: JobDetails) -> FitFacts | None:
    """Of a job that was accepted earlier, for the nodes as they are now; None too for one that has ended."""
    if job.job.state in TERMINAL:
        return None
    try:
        request, nodes = request_of_job(session, job.job), plane.inventory.capacities(session)
        return asked_of(session, job.document, request, nodes, plane.reading.of(job.job.project).remembering())
    except _ODD:
        _log.exception("the memory of job %s cannot be estimated", job.job.id)
        return None


def of(db: Database, asked: FitFacts | None) -> Fit | None:
    """The estimate; call it outside of a transaction. It never fails: it is an extra to what the caller answers."""
    if asked is None:
        return None
    try:
        config = _config(db, asked.base, asked.reading)
        if not isinstance(config, _Unknown):
            found = fit_of(asked.document, config, asked.request, asked.nodes)
            return _beside_rollouts(found) if asked.has_rollouts else found
    except _ODD:
        _log.exception("the memory of a training cannot be estimated")
        config = _Unknown(reason="its model's configuration is not understood")
    count = asked.request.node_count * asked.request.device_count
    return Fit(estimate=MemoryEstimate(reason=config.reason), devices=count, device=None)


def _beside_rollouts(fit: Fit) -> Fit:
    """A training with rollouts does not change its framework or its devices by a single field of the job."""
    notes = (*fit.estimate.notes, _UNCOUNTED)
    ways: list[WayOut] = [each for each in fit.ways_out if not any(name.startswith(FIELD) for name in each.fields)]
    return replace(fit, estimate=replace(fit.estimate, notes=notes), ways_out=ways, at=f"{_ROLE}.{FIELD}")


def of_new(plane: ControlPlane, asked: FitFacts | None) -> Fit | None:
    """As `of`, for a submission: a refusal is never based on nodes that were read a moment ago."""
    found = of(plane.db, asked)
    if asked is None or found is None or found.verdict != "does_not_fit":
        return found
    with plane.db.read() as session:
        nodes = plane.inventory.capacities_now(session)
    return of(plane.db, replace(asked, nodes=nodes))


def refuse_what_cannot_fit(document: JobDocument, fit: Fit | None) -> None:
    """Raises CannotFit where no device has what the job needs even with short records."""
    if fit is None or fit.verdict != "does_not_fit" or document.resource_config.force_fit:
        return
    raise CannotFit(f"{fit.message}; {_FORCE}: true submits it anyway", field=fit.at)


def warnings(fit: Fit | None) -> list[str]:
    """What a submission says of a job that may not fit, everywhere or on some of the nodes that could get it."""
    is_said = fit is not None and (fit.verdict in ("may_not_fit", "does_not_fit") or fit.too_small)
    return [f"{fit.at}: {fit.message}"] if fit is not None and is_said else []


def _base(session: Session, base: BaseModel, reading: ReadingRules) -> BaseModel | _Unknown:
    """Of a model that jobs made, one after the other, the one from which the first began."""
    for _ in range(_MOST_JOBS):
        if isinstance(base.from_config, Mapping) or not is_result(base):
            return base
        job = session.get(Job, base.job_id)
        if job is None or job.project != reading.project:
            break
        base = job.document.training_config.base_model
    return _Unknown(reason="the job that made its model is gone")


def _config(db: Database, base: BaseModel | _Unknown, reading: ReadingRules) -> Mapping[str, Any] | _Unknown:
    if isinstance(base, _Unknown):
        return base
    if isinstance(base.from_config, Mapping):
        return base.from_config
    name = base.model_id.removeprefix("hf://").partition("@")[0]
    found = _read(db, base.model_id, reading) if base.source != "hub" else None
    if found is None and is_hub_id(name) and base.source != "local":
        found = known_config(name)
    if found is not None:
        return found
    return _Unknown(reason=f"the configuration of {base.model_id[:96]} can't be read here; the node reads it")


def _read(db: Database, location: str, reading: ReadingRules) -> Mapping[str, Any] | None:
    """The config.json of a local directory that jobs of the project may read; None for all others."""
    try:
        path = local_path(location, field="")
    except BadSpec:
        return None
    if path is None or is_upload(location):
        return None
    for directory in candidates(path, reading):
        real = reading.real_path(f"{directory}/{_FILE}")
        if not (readable(directory, reading) and readable(real, reading)):
            continue
        owner = job_of_path(real, reading)
        if owner is not None and not _is_of_project(db, owner, reading.project):
            continue
        if (found := _json_object(real)) is not None:
            return found
    return None


def _is_of_project(db: Database, job_id: str, project: str) -> bool:
    with db.read() as session:
        job = session.get(Job, job_id)
        return job is not None and job.project == project


def _json_object(real_path: str) -> Mapping[str, Any] | None:
    """The content of a small regular file."""
    try:
        descriptor = _opened(real_path)
    except (OSError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST_BYTES:
            return None
        try:
            found = json.loads(file.read(_MOST_BYTES + 1))
        except (OSError, ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _opened(real_path: str) -> int:
    """Links in it are resolved and checked already, so that one in any part of it now was put there meanwhile."""
    *folders, name = real_path.strip("/").split("/")
    at = os.open("/", _STEP)
    try:
        for folder in folders:
            before, at = at, os.open(folder, _STEP, dir_fd=at)
            os.close(before)
        return os.open(name, _READ, dir_fd=at)
    finally:
        os.close(at)
