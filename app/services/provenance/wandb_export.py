"""A job's stored metrics as one file for `wandb sync`, read in parts, so that a long run needs little memory."""

from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from typing import Any

from sqlalchemy import select

from app.database.engine import Database
from app.domain.json_numbers import json_number, number_of
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.locations.published import published
from app.domain.spec.model import JobDocument, Tracker
from app.domain.spec.rules.tracking import LONGEST_TAG
from app.domain.wandb_file import WandbFile, WandbRun
from app.models import Job, Metric

POINTS_AT_ONCE = 500
_SETTINGS = ("batch_size", "gradient_accumulation_steps", "max_seq_length", "seed")


def exported(db: Database, job: Job, shown: Tracker, *, exit_code: int | None = None) -> Iterator[bytes]:
    """All attempts are one run with the job's id. A step that was repeated after a resume has its newest values.

    ``shown`` says how the run is shown in W&B; ``exit_code``: of the attempt, with which a job that continues may end.
    """
    file, started = WandbFile(), (job.started_at or job.created_at).timestamp()
    yield file.begin(_run(job, shown, started))
    for step, values in _steps(db, job.id, started):
        yield file.step(step, values)
    runtime = {"_runtime": int(job.elapsed_seconds), "_wandb": {"runtime": int(job.elapsed_seconds)}}
    yield file.summary({**job.latest_metrics, **runtime, "_step": job.current_step})
    if job.state in TERMINAL:
        exit_code = 0 if job.state is JobState.COMPLETED else 1
    if exit_code is not None:
        yield file.end(exit_code, int(job.elapsed_seconds))


def _run(job: Job, shown: Tracker, started: float) -> WandbRun:
    labels = (f"{name}={value}"[:LONGEST_TAG] for name, value in job.labels.items())
    return WandbRun(
        run_id=job.id,
        project=shown.experiment or job.project,
        entity=shown.entity or "",
        name=shown.run_name or job.name,
        config=_config(job.document, job),
        tags=[*dict.fromkeys((*shown.tags, *labels))],
        group=job.sweep_id or "",
        job_type=job.training_type,
        host="trainyard",
        started_seconds=started,
    )


def _config(document: JobDocument, job: Job) -> dict[str, Any]:
    data, base = document.data_config, document.training_config.base_model
    return {
        "base_model": base.job_id or published(base.model_id, is_of_hub=base.source == "hub"),
        "training_type": job.training_type,
        "framework": job.framework,
        **{name: getattr(data, name) for name in _SETTINGS},
        **document.training_config.hyperparameters,
    }


def _steps(db: Database, job_id: str, started: float) -> Iterator[tuple[int, dict[str, Any]]]:
    with db.read() as session:
        names = session.scalars(
            select(Metric.name).where(Metric.job_id == job_id).distinct().order_by(Metric.name)
        ).all()
    points = merge(*(_series(db, job_id, name) for name in names), key=lambda each: each.step)
    for step, of_step in groupby(points, lambda each: each.step):
        rows = list(of_step)
        values = {each.name: json_number(number_of(each.value, each.special)) for each in rows}
        at = max(each.at.timestamp() for each in rows)
        yield step, {**values, "_timestamp": at, "_runtime": max(0.0, at - started)}


def _series(db: Database, job_id: str, name: str) -> Iterator[Metric]:
    """The points of one metric by step, read along the table's primary key."""
    step, mine = -1, (Metric.job_id == job_id, Metric.name == name)
    while True:
        with db.read() as session:
            query = select(Metric).where(*mine, Metric.step > step).order_by(Metric.step).limit(POINTS_AT_ONCE)
            points = session.scalars(query).all()
        yield from points
        if len(points) < POINTS_AT_ONCE:
            return
        step = points[-1].step
