"""Result files: the metrics of a job's steps as CSV, for jobs that make a model with a name."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.files import purposes
from app.domain.ids import moment_of, new_id
from app.models import File, Job, Metric, RegisteredModel
from app.models.base import utc_now
from app.storage.keys import user_file_key
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


def write(db: Database, storage: Storage, job_id: str) -> None:
    """Write the result file of a job whose training is complete; one of an earlier attempt expires.

    Has no effect for a job that makes no model with a name.
    """
    with db.read() as session:
        makers = select(Job).join(RegisteredModel, RegisteredModel.job_id == Job.id)
        job = session.scalar(makers.where(Job.id == job_id))
    if job is None:
        return
    file_id, size, digest = new_id("file"), 0, sha256()
    with storage.create(user_file_key(job.project, file_id)) as writer, db.read() as session:
        for line in _lines(session, job_id):
            writer.write(line)
            digest.update(line)
            size += len(line)
    with db.write() as session:
        earlier = update(File).where(File.job_id == job_id, File.purpose == purposes.RESULTS)
        session.execute(earlier.values(expires_at=utc_now()).execution_options(synchronize_session=False))
        session.add(
            File(
                id=file_id,
                project=job.project,
                created_by=job.created_by,
                filename=FILENAME,
                purpose=purposes.RESULTS,
                size_bytes=size,
                sha256=digest.hexdigest(),
                status=purposes.PROCESSED,
                job_id=job_id,
                created_at=moment_of(file_id),
            )
        )


def _lines(session: Session, job_id: str) -> Iterator[bytes]:
    """A header, and a line for each step."""
    one_of_each = select(Metric.name).where(Metric.job_id == job_id, Metric.name.in_(COLUMNS)).distinct()
    measured = set(session.scalars(one_of_each))
    names = [name for name in COLUMNS if name in measured or name in _ALWAYS]
    yield _line(["step", *(COLUMNS[name] for name in names)])
    points = select(Metric.step, Metric.name, Metric.value, Metric.special).where(
        Metric.job_id == job_id, Metric.name.in_(names)
    )
    step, row = None, dict[str, str]()
    for point in session.execute(points.order_by(Metric.step).execution_options(yield_per=_ROWS_AT_ONCE)):
        if point.step != step and step is not None:
            yield _line([str(step), *(row.get(name, "") for name in names)])
            row = {}
        step = point.step
        row[point.name] = point.special or repr(point.value)
    if step is not None:
        yield _line([str(step), *(row.get(name, "") for name in names)])


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
