"""Result files: the metrics of a job's steps as CSV, for jobs that make a model with a name."""

import csv
import heapq
import io
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.files import purposes
from app.domain.ids import new_id
from app.domain.lifecycle.states import HELD
from app.models import File, Job, Metric, RegisteredModel
from app.models.base import utc_now
from app.services.access import projects
from app.services.files import creation, hidden_rows
from app.services.files.incoming import Incoming, StoredContent
from app.storage.storage import Storage

FILENAME = "step_metrics.csv"
# Metric → column, as OpenAI's files have them.
COLUMNS = {
    "loss": "train_loss",
    "mean_token_accuracy": "train_accuracy",
    "eval_loss": "valid_loss",
    "eval_mean_token_accuracy": "valid_mean_token_accuracy",
    "reward": "train_mean_reward",
    "eval_reward": "valid_mean_reward",
}
_ALWAYS = tuple(COLUMNS)[:4]
_ROWS_AT_ONCE = 2000


def of_jobs(session: Session, job_ids: Collection[str]) -> Mapping[str, list[str]]:
    """Job → ids of its result files."""
    query = select(File.job_id, File.id).where(File.job_id.in_(job_ids), File.expires_at.is_(None)).order_by(File.id)
    found: dict[str, list[str]] = {}
    for job_id, file_id in session.execute(query):
        found.setdefault(job_id or "", []).append(file_id)
    return found


@dataclass(frozen=True)
class _Stores:
    db: Database
    storage: Storage


def write(db: Database, storage: Storage, job_id: str, *, fence: int | None = None) -> None:
    """Write the result file of a job whose training is complete; one of an earlier attempt expires.

    Has no effect for a job that makes no model with a name, and with ``fence`` once another attempt has begun.
    """
    with db.read() as session:
        makers = select(Job).join(RegisteredModel, RegisteredModel.job_id == Job.id)
        job = session.scalar(makers.where(Job.id == job_id))
    if job is None:
        return
    place = creation.place_of(new_id("file"), job.project, max_bytes=sys.maxsize, free_bytes=None)
    with Incoming(_Stores(db, storage), place) as incoming:
        for line in _lines(db, job_id):
            incoming.write(line)
        content = incoming.finish()
        with db.write() as session:
            _show(session, job.project, job_id, content, fence)


def _show(session: Session, project: str, job_id: str, content: StoredContent, fence: int | None) -> None:
    # Project, job, files: the order in which a deletion of the job locks them.
    projects.hold(session, project)
    job = session.get(Job, job_id, with_for_update={"key_share": True}, populate_existing=True)
    if job is None or (fence is not None and not (job.fence == fence and job.status in HELD)):
        return
    earlier = update(File).where(File.job_id == job_id, File.purpose == purposes.RESULTS)
    session.execute(earlier.values(expires_at=utc_now()).execution_options(synchronize_session=False))
    file = hidden_rows.taken(session, content.file_id)
    file.created_by = job.created_by
    file.filename, file.purpose = FILENAME, purposes.RESULTS
    file.size_bytes, file.sha256 = content.size_bytes, content.sha256
    file.status, file.job_id, file.expires_at = purposes.PROCESSED, job_id, None


def _lines(db: Database, job_id: str) -> Iterator[bytes]:
    """A header, and a line for each step."""
    one_of_each = select(Metric.name).where(Metric.job_id == job_id, Metric.name.in_(COLUMNS)).distinct()
    with db.read() as session:
        measured = set(session.scalars(one_of_each))
    names = [name for name in COLUMNS if name in measured or name in _ALWAYS]
    yield _line(["step", *(COLUMNS[name] for name in names)])
    step_of = itemgetter(0)
    points = heapq.merge(*(_points(db, job_id, name) for name in names), key=step_of)
    for step, of_step in groupby(points, key=step_of):
        row = {name: text for _, name, text in of_step}
        yield _line([str(step), *(row.get(name, "") for name in names)])


def _points(db: Database, job_id: str, name: str) -> Iterator[tuple[int, str, str]]:
    """Step, name and value by step; read in pages, between which no transaction is open while the storage is slow."""
    query = select(Metric.step, Metric.value, Metric.special).where(Metric.job_id == job_id, Metric.name == name)
    page = query.order_by(Metric.step).limit(_ROWS_AT_ONCE)
    while True:
        with db.read() as session:
            rows = session.execute(page).all()
        yield from ((row.step, name, row.special or repr(row.value)) for row in rows)
        if len(rows) < _ROWS_AT_ONCE:
            return
        page = query.where(Metric.step > rows[-1].step).order_by(Metric.step).limit(_ROWS_AT_ONCE)


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
