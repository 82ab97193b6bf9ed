"""A job's stored metrics as one file for `wandb sync`, read in parts, so that a long run needs little memory."""

import math
import time
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Integer, bindparam, func, select

from app.database.engine import Database
from app.domain.json_numbers import json_number, number_of
from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.domain.spec.locations.published import published
from app.domain.spec.model import JobDocument, Tracker
from app.domain.spec.rules.tracking import LONGEST_TAG
from app.domain.wandb_file import WandbFile, WandbRun
from app.models import Attempt, Job, Metric
from app.models.base import utc_now

POINTS_AT_ONCE = 500  # of one metric
_FEWEST_AT_ONCE, _POINTS_HELD = 10, 20_000  # the latter over all metrics, which are read side by side
# Made once: it is run thousands of times.
_NEXT_POINTS = (
    select(Metric.step, Metric.at, Metric.value, Metric.special)
    .where(Metric.job_id == bindparam("job"), Metric.name == bindparam("metric"), Metric.step > bindparam("last"))
    .order_by(Metric.step)
    .limit(bindparam("most", type_=Integer))
)
_SETTINGS = ("batch_size", "gradient_accumulation_steps", "max_seq_length", "seed")


class _Limit:
    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise TimeoutError(f"it takes more than {self._seconds:g} s")


def exported(
    db: Database, job: Job, shown: Tracker, *, exit_code: int | None = None, seconds: float = math.inf
) -> Iterator[bytes]:
    """All attempts are one run with the job's id. A step that was repeated after a resume has its newest values.

    ``shown`` says how the run is shown in W&B; ``exit_code``: of the attempt, with which a job that continues may end.
    Raises TimeoutError when the points are not read and taken within ``seconds``.
    """
    limit, file, started = _Limit(seconds), WandbFile(), (job.started_at or job.created_at).timestamp()
    yield file.begin(_run(job, shown, started))
    for step, values in _steps(db, job.id, started, limit):
        yield file.step(step, values)
    ran = _ran_seconds(db, job)
    runtime = {"_runtime": ran, "_wandb": {"runtime": ran}}
    yield file.summary({**job.latest_metrics, **runtime, "_step": job.current_step})
    if job.state in TERMINAL:
        exit_code = 0 if job.state is JobState.COMPLETED else 1
    if exit_code is not None:
        yield file.end(exit_code, ran)


def _ran_seconds(db: Database, job: Job) -> int:
    """Of all attempts, with the one that has not ended."""
    going_on = (Attempt.job_id == job.id, Attempt.ended_at.is_(None))
    with db.read() as session:
        since = session.scalar(select(func.min(Attempt.started_at)).where(*going_on)) if job.state in RUNNING else None
    running = max(0.0, (utc_now() - since).total_seconds()) if since is not None else 0.0
    return int(job.elapsed_seconds + running)


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


def _steps(db: Database, job_id: str, started: float, limit: _Limit) -> Iterator[tuple[int, dict[str, Any]]]:
    with db.read() as session:
        names = session.scalars(
            select(Metric.name).where(Metric.job_id == job_id).distinct().order_by(Metric.name)
        ).all()
    at_once = min(POINTS_AT_ONCE, max(_FEWEST_AT_ONCE, _POINTS_HELD // max(1, len(names))))
    points = merge(*(_series(db, job_id, name, at_once, limit) for name in names), key=lambda each: each.step)
    for step, of_step in groupby(points, lambda each: each.step):
        limit.check()
        rows = list(of_step)
        values = {each.name: json_number(number_of(each.value, each.special)) for each in rows}
        at = max(each.at.timestamp() for each in rows)
        yield step, {**values, "_timestamp": at, "_runtime": max(0.0, at - started)}


class _Point(NamedTuple):
    name: str
    step: int
    at: datetime
    value: float | None
    special: str | None


def _series(db: Database, job_id: str, name: str, at_once: int, limit: _Limit) -> Iterator[_Point]:
    """The points of one metric by step, read along the table's primary key. Raises TimeoutError."""
    step = -1
    while True:
        limit.check()
        with db.read() as session:
            after = {"job": job_id, "metric": name, "last": step, "most": at_once}
            points = session.execute(_NEXT_POINTS, after).all()
        yield from (_Point(name, *each) for each in points)
        if len(points) < at_once:
            return
        step = points[-1].step
