"""Lineage of a job: what it was made of, and what was made of it, as a bounded graph within its project."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from app.domain.model_cards.inputs import ReadModel, ReadSource
from app.domain.spec.locations.paths import NO_MODEL, is_hub_id
from app.domain.spec.locations.published import published
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import JobDocument
from app.models import Checkpoint, File, Job, RegisteredModel, Service, Sweep
from app.services.provenance.inputs import read_inputs

MOST = 200  # nodes of a graph
# Jobs of the project, the newest first, whose documents are searched for users of a result: only those that were
# created after it. A graph of a project with more of them says that there may be more.
MOST_SEARCHED = 20_000
JOB, SWEEP, SERVICE, FILE, LOCATION, MODEL = "job", "sweep", "service", "file", "location", "model"
# Relation: what `source` is to `target`.
RETRIED, RESUMED, CONTINUED, USED, EVALUATED = "retried_as", "resumed_by", "continued_by", "used_by", "evaluated_by"
TRAINED_ON, BASE_OF, TRIAL_OF, SERVED_BY, NAMED, WROTE = (
    "data_of",
    "base_of",
    "has_trial",
    "served_by",
    "named",
    "wrote",
)
_MADE_BY = (
    Job.spec["training_config", "base_model", "job_id"].as_string(),
    Job.spec["inference", "model", "job_id"].as_string(),
)


@dataclass(frozen=True, kw_only=True)
class LineageNode:
    """``sha256``: of a file, or over the weights of a job's result; None: not known, or there is none."""

    kind: str
    id: str
    name: str
    status: str | None = None
    sha256: str | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class LineageLink:
    """``source`` came first: ``target`` was made with it, or of it. Digests and commit: of what its last attempt has
    read there, which is a fact about the link, because a place may hold something else for each job.
    """

    source: str
    target: str
    relation: str
    sha256: str | None = None
    sampled_sha256: str | None = None
    commit: str | None = None


@dataclass(kw_only=True)
class Lineage:
    job_id: str
    nodes: dict[str, LineageNode] = field(default_factory=dict)
    links: dict[LineageLink, None] = field(default_factory=dict)
    truncated: bool = False

    def add(self, node: LineageNode) -> bool:
        """False when there is no room."""
        if node.id not in self.nodes and len(self.nodes) >= MOST:
            self.truncated = True
            return False
        self.nodes.setdefault(node.id, node)
        return True

    def link(self, node: LineageNode, source: str, target: str, relation: str, **content: str | None) -> None:
        """With the node that is one end of it; ``content``: the digests and the commit."""
        if self.add(node):
            self.links[LineageLink(source=source, target=target, relation=relation, **content)] = None


def lineage(session: Session, job: Job, *, depth: int) -> Lineage:
    """Jobs at most ``depth`` steps away, with what is beside each. Nothing of other projects."""
    found = Lineage(job_id=job.id)
    found.add(_of_job(job))
    level = {job.id: job}
    for step in range(depth + 1):
        for each in level.values():
            _add_inputs(session, found, each)
        _add_uses(session, found, job.project, level)
        if step == depth or not level:
            break
        before = set(found.nodes)
        reached = [*_made_from(session, found, job.project, level), *_made_of(session, found, job.project, level)]
        level = {each.id: each for each in reached if each.id in found.nodes and each.id not in before}
    return found


def _of_job(job: Job) -> LineageNode:
    digest = (job.report or {}).get("model_hash") or None
    return LineageNode(kind=JOB, id=job.id, name=job.name, status=job.status, sha256=digest)


def _add_inputs(session: Session, found: Lineage, job: Job) -> None:
    """Data and base model of a job, its sweep, and the files and models that it has made."""
    document = job.document
    ids = [each.path for each in document.data_config.sources if is_upload(each.path)]
    mine = (File.project == job.project, File.id.in_(ids) if ids else File.id.is_(None))
    files = {each.id: each for each in session.scalars(select(File).where(*mine))} if ids else {}
    inputs = read_inputs(session, job.id)
    was = {each.index: each for each in inputs.data}
    for number, location in enumerate(each.path for each in document.data_config.sources):
        file, read = files.get(location), was.get(number, ReadSource(index=number))
        node = _of_file(file) if file is not None else _of_location(location)
        found.link(node, node.id, job.id, TRAINED_ON, sha256=read.sha256, commit=read.commit)
    if (base := _base_of(document)) is not None:
        model = inputs.base or ReadModel()
        found.link(base, base.id, job.id, BASE_OF, sampled_sha256=model.sampled_sha256, commit=model.commit)
    if job.sweep_id is not None and (sweep := session.get(Sweep, job.sweep_id)) is not None:
        node = LineageNode(kind=SWEEP, id=sweep.id, name=sweep.name, status=sweep.status)
        found.link(node, sweep.id, job.id, TRIAL_OF)
    for written in session.scalars(select(File).where(File.job_id == job.id, File.project == job.project).limit(MOST)):
        found.link(_of_file(written), job.id, written.id, WROTE)


def _of_file(file: File) -> LineageNode:
    return LineageNode(kind=FILE, id=file.id, name=file.filename, status=file.status, sha256=file.sha256)


def _of_location(location: str) -> LineageNode:
    shown = published(location) if not is_upload(location) else location
    return LineageNode(kind=LOCATION, id=f"location:{shown}", name=shown)


def _base_of(document: JobDocument) -> LineageNode | None:
    base = document.training_config.base_model
    if not base.model_id or base.model_id == NO_MODEL:
        return None
    shown = published(base.model_id, is_of_hub=is_hub_id(base.model_id.partition("@")[0]))
    at = f"@{base.revision}" if base.revision else ""
    return LineageNode(kind=MODEL, id=f"model:{shown}{at}", name=shown, revision=base.revision)


def _add_uses(session: Session, found: Lineage, project: str, level: Collection[str]) -> None:
    """Services that serve what these jobs have made, and the names that it has."""
    owner = dict.fromkeys(level)
    keys = {each: each for each in owner} | dict(
        session.execute(select(Checkpoint.id, Checkpoint.job_id).where(Checkpoint.job_id.in_(owner))).all()
    )
    live = (Service.project == project, Service.ended_at.is_(None), Service.model_key.in_(keys))
    for service in session.scalars(select(Service).where(*live).limit(MOST)):
        node = LineageNode(kind=SERVICE, id=service.id, name=service.name, status=service.status)
        found.link(node, keys[service.model_key], service.id, SERVED_BY)
    for model in session.scalars(select(RegisteredModel).where(RegisteredModel.job_id.in_(owner))):
        node = LineageNode(kind=MODEL, id=f"model:{model.name}", name=model.name)
        found.link(node, model.job_id or "", node.id, NAMED)


def _made_from(session: Session, found: Lineage, project: str, level: dict[str, Job]) -> Iterator[Job]:
    """The jobs that these were made from."""
    starts = {each.resume_checkpoint_id for each in level.values() if each.resume_checkpoint_id is not None}
    of = dict(session.execute(select(Checkpoint.id, Checkpoint.job_id).where(Checkpoint.id.in_(starts))).all())
    wanted = [(source, each.id, relation) for each in level.values() for source, relation in _sources(each, of)]
    jobs = {each.id: each for each in _jobs(session, project, Job.id.in_({source for source, _, _ in wanted}))}
    for source, target, relation in wanted:
        if source in jobs:
            found.link(_of_job(jobs[source]), source, target, relation)
            yield jobs[source]


def _sources(job: Job, checkpoints: dict[str, str]) -> Iterator[tuple[str, str]]:
    document = job.document
    if job.parent_job_id is not None:
        yield job.parent_job_id, RETRIED
    if job.resume_checkpoint_id in checkpoints and document.inference is None:
        yield checkpoints[job.resume_checkpoint_id], RESUMED
    if document.training_config.base_model.job_id is not None and document.inference is None:
        yield document.training_config.base_model.job_id, CONTINUED
    if document.inference is not None and document.inference.model.job_id is not None:
        yield document.inference.model.job_id, EVALUATED if job.evaluated_job_id is not None else USED


def _made_of(session: Session, found: Lineage, project: str, level: dict[str, Job]) -> Iterator[Job]:
    """The jobs that were made from these: by columns with an index, and by the documents of the jobs that are newer."""
    saved = select(Checkpoint.id).where(Checkpoint.job_id.in_(level))
    since = min(each.created_at for each in level.values())
    newer = select(Job.id).where(Job.project == project, Job.created_at >= since).order_by(Job.created_at.desc())
    if session.scalar(newer.offset(MOST_SEARCHED).limit(1)) is not None:
        found.truncated = True
    reached = [
        *_jobs(session, project, Job.parent_job_id.in_(level)),
        *_jobs(session, project, Job.evaluated_job_id.in_(level)),
        *_jobs(session, project, Job.resume_checkpoint_id.in_(saved)),
        *_jobs(session, project, Job.id.in_(newer.limit(MOST_SEARCHED)), or_(*(each.in_(level) for each in _MADE_BY))),
    ]
    starts = {each.resume_checkpoint_id for each in reached if each.resume_checkpoint_id is not None}
    of = dict(session.execute(select(Checkpoint.id, Checkpoint.job_id).where(Checkpoint.id.in_(starts))).all())
    for each in {job.id: job for job in reached}.values():
        for source, relation in _sources(each, of):
            if source in level:
                found.link(_of_job(each), source, each.id, relation)
        yield each


def _jobs(session: Session, project: str, *conditions: Any) -> Iterable[Job]:
    """One more than there is room for, so that a graph that is cut says so."""
    query = select(Job).where(Job.project == project, *conditions).order_by(Job.created_at.desc(), Job.id)
    return session.scalars(query.limit(MOST + 1)).all()
