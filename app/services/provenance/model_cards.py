"""The model card of a job's result, put together from rows whenever it is read."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.evaluations.requirements import all_passed
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import TERMINAL
from app.domain.model_cards import facts
from app.domain.model_cards.facts import BaseOfModel, CardFile, CardSource, Compute, MeasuredMetric, ModelCard
from app.domain.model_cards.inputs import ReadModel, ReadSource
from app.domain.spec.defaults import SPLIT
from app.domain.spec.document import method
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.inference import TRAINING
from app.domain.spec.locations.paths import NO_MODEL, is_hub_id
from app.domain.spec.locations.published import published
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import BaseModel, JobDocument
from app.models import Artifact, Attempt, File, Job, JobEvent
from app.services.attempts import artifacts
from app.services.evaluations import of_job
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs import history, reports
from app.services.provenance.inputs import read_inputs

_READ = "sources"  # of the preflight's report
_NOT_READ = ReadSource(index=-1)
HUB = "hub"  # BaseModel.source
_ADAPTER_CONFIG, _CONFIG = "adapter_config.json", "config.json"
_SETTINGS = ("max_seq_length", "batch_size", "gradient_accumulation_steps", "validation_split", "seed", "packing")


def model_card(session: Session, job: Job) -> ModelCard:
    """Raises NotFound for a job that has made no model, or not yet."""
    files = _result(session, job)
    document, report = job.document, reports.completion_report(session, job)
    training, inputs = document.training_config, read_inputs(session, job.id)
    found = of_job.evaluations_of(session, job)
    weights = frozenset(report.weight_files)
    return ModelCard(
        job_id=job.id,
        project=job.project,
        name=document.output_config.output_model_name or job.name,
        kind=_kind(files),
        training_type=job.training_type,
        framework=job.framework,
        judges=method(document) == REWARD_METHOD,
        base=_base(session, job.project, training.base_model, inputs.base or ReadModel()),
        settings=_settings(document),
        sources=list(_sources(session, job, document, {each.index: each for each in inputs.data})),
        steps=job.current_step,
        tokens=job.tokens,
        final_metrics=report.final_metrics,
        evaluations=[each for one in found.evaluations for each in _measured(one)],
        passed=found.passed,
        model_hash=report.model_hash,
        files=[
            CardFile(path=each.path, size_bytes=each.size_bytes, sha256=each.sha256, is_weights=each.path in weights)
            for each in files
        ],
        compute=_compute(job, history.attempts(session, job.id)),
        labels=dict(job.labels),
        created_at=job.created_at,
        finished_at=job.finished_at,
    )


def _result(session: Session, job: Job) -> Sequence[Artifact]:
    if job.kind != TRAINING:
        raise NotFound(f"{job.id} is of kind {job.kind} and made no model; name a training job")
    if job.state not in TERMINAL:
        raise NotFound(f"job {job.id} is {job.status}; its model card exists when it has ended")
    files = artifacts.listed(session, job.id)
    if not files:
        raise NotFound(f"job {job.id} is {job.status} and has no result, so that there is no model card")
    return files


def _kind(files: Iterable[Artifact]) -> str:
    paths = {each.path for each in files}
    if _ADAPTER_CONFIG in paths:
        return facts.ADAPTER
    return facts.MODEL if _CONFIG in paths else facts.FILES


def _base(session: Session, project: str, base: BaseModel, was: ReadModel) -> BaseOfModel:
    model_id, _, in_id = (
        base.model_id.partition("@") if is_hub_id(base.model_id.partition("@")[0]) else (base.model_id, "", "")
    )
    # A directory may have the form of a hub's id, too, but rarely with an owner before it.
    of_hub = base.source == HUB or (base.source is None and "/" in model_id and is_hub_id(model_id))
    made_by = session.get(Job, base.job_id) if base.job_id is not None else None
    known = made_by is not None and made_by.project == project
    return BaseOfModel(
        location="" if model_id == NO_MODEL else published(model_id, is_of_hub=of_hub),
        is_of_hub=of_hub,
        revision=base.revision or in_id or None,
        job_id=base.job_id,
        model_hash=((made_by.report or {}).get("model_hash") or None) if made_by is not None and known else None,
        commit=was.commit,
        sampled_sha256=was.sampled_sha256,
    )


def _settings(document: JobDocument) -> dict[str, Any]:
    data = document.data_config
    values = {name: getattr(data, name) for name in _SETTINGS if name in data.given}
    return values | dict(document.training_config.hyperparameters)


def _sources(
    session: Session, job: Job, document: JobDocument, inputs: Mapping[int, ReadSource]
) -> Iterator[CardSource]:
    files = _files(session, job.project, [each.path for each in document.data_config.sources])
    read = _records_read(session, job.id)
    for number, source in enumerate(document.data_config.sources):
        file, was = files.get(source.path), inputs.get(number, _NOT_READ)
        yield CardSource(
            location=published(source.path) if file is None else file.filename,
            split=source.split or SPLIT,
            file_id=file.id if file is not None else None,
            sha256=file.sha256 if file is not None else was.sha256,
            commit=was.commit,
            size_bytes=file.size_bytes if file is not None else was.size_bytes,
            records=file.records if file is not None else None,
            records_read=read.get(number),
        )


def _files(session: Session, project: str, paths: Iterable[str]) -> dict[str, File]:
    """Those that still exist; a project sees its own files alone."""
    ids = sorted({path for path in paths if is_upload(path)})
    mine = (File.id.in_(ids), File.project == project)
    return {each.id: each for each in session.scalars(select(File).where(*mine))} if ids else {}


def _records_read(session: Session, job_id: str) -> dict[int, int]:
    """How many records of each source the preflight has read."""
    of_job_ = (JobEvent.job_id == job_id, JobEvent.type == EventType.PREFLIGHT)
    data = session.scalar(select(JobEvent.data).where(*of_job_).order_by(JobEvent.seq.desc()).limit(1)) or {}
    return {each["index"]: each["records_read"] for each in data.get(_READ, []) if "records_read" in each}


def _measured(evaluation: EvaluationDetails) -> Iterator[MeasuredMetric]:
    """What was measured of the result; checkpoints are not what the card is about."""
    if evaluation.job.evaluated_step is not None:
        return
    datasets = _datasets(evaluation)
    verdicts = evaluation.verdicts
    for name, result in sorted(evaluation.results.items()):
        for metric, measured in sorted((result.get("metrics") or {}).items()):
            required = [each for each in verdicts if each.get("metric") in (metric, f"{name}/{metric}")]
            yield MeasuredMetric(
                evaluation_id=evaluation.job.id,
                benchmark=name,
                dataset=published(datasets.get(name, "")),
                metric=metric,
                value=measured.get("value"),
                stderr=measured.get("stderr"),
                samples=result.get("n"),
                passed=all_passed(required),
            )


def _datasets(evaluation: EvaluationDetails) -> dict[str, str]:
    """The location of each benchmark's data."""
    sources = evaluation.details.document.data_config.sources
    return {
        each.name: sources[each.dataset].path
        for each in evaluation.section.benchmarks
        if each.dataset is not None and each.dataset < len(sources)
    }


def _compute(job: Job, attempts: Sequence[Attempt]) -> Compute:
    """Devices of the last attempt that ran, since recovery may have moved the job."""
    last = attempts[-1] if attempts else None
    return Compute(
        device_types=sorted({each.device_type for each in attempts}),
        devices=len(list(itertools.chain(*last.device_indices))) if last is not None else 0,
        nodes=len(last.node_names) if last is not None else 0,
        attempts=len(attempts),
        seconds=job.elapsed_seconds,
        device_seconds=job.gpu_seconds,
    )
