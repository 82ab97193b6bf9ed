"""Inspections in the database: requested once, claimed by one coordinator, cached by fingerprint."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import JobDocument
from app.models import Inspection, Job
from app.models.base import utc_now

PASSED, FAILED, LEFT = "passed", "failed", "left"
MOST_TRIES = 3
# A pass is valid as long as the files are the same. A failure is cached only briefly: its cause may not be part of the
# fingerprint, such as an installed package.
PASSED_TTL = timedelta(days=7)
FAILED_TTL = timedelta(minutes=10)
ANSWER_TTL = timedelta(minutes=10)  # for clients that repeat their request
_READ_AT_ONCE = 100
_IS_OF_MODELS = Inspection.file_id.is_(None) & Inspection.is_grading.is_(False)

Report = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Open:
    """A waiting or running inspection, as coordinators see it."""

    id: str
    state: str
    holder: str
    counter: int
    fingerprint: str
    file_id: str | None = None
    is_grading: bool = False

    @property
    def is_of_models(self) -> bool:
        """Needs the training libraries; what files and graders need, every coordinator has."""
        return self.file_id is None and not self.is_grading


@dataclass(frozen=True, kw_only=True)
class InspectionClaim:
    """A claimed inspection, as long as its row has this holder."""

    id: str
    holder: str
    job_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class InspectionTask(InspectionClaim):
    """A claimed inspection of model and data. ``report`` is set when an equal one was done before."""

    project: str
    document: JobDocument
    sealed_secrets: str
    report: Report | None = None


@dataclass(frozen=True, kw_only=True)
class InspectionRequest:
    """An inspection that a user requested."""

    project: str
    document: JobDocument
    sealed_secrets: str
    request_hash: str
    fingerprint: str


def verdict_of(report: Report) -> str:
    """FAILED for a report with errors; LEFT, which is not cached, for one that left something to the node."""
    if report.get("errors"):
        return FAILED
    return LEFT if report.get("left_out") else PASSED


def remembered(session: Session, fingerprint: str) -> Report | None:
    """Cached report on the same model, data and configuration, if any."""
    if not fingerprint:
        return None
    now = utc_now()
    row = session.execute(
        select(Inspection.report)
        .where(
            Inspection.fingerprint == fingerprint,
            ((Inspection.verdict == PASSED) & (Inspection.finished_at > now - PASSED_TTL))
            | ((Inspection.verdict == FAILED) & (Inspection.finished_at > now - FAILED_TTL)),
        )
        .order_by(Inspection.finished_at.desc())
        .limit(1)
    ).first()
    return {**row.report, "remembered": True} if row is not None else None


def request_for_job(session: Session, job: Job, fingerprint: str) -> bool:
    """Request the inspection of a job, which the caller has locked; False when it was requested already."""
    if session.scalar(select(Inspection.id).where(Inspection.job_id == job.id)) is not None:
        return False
    session.add(Inspection(id=new_id("insp"), project=job.project, job_id=job.id, fingerprint=fingerprint))
    return True


def request(db: Database, asked: InspectionRequest) -> str:
    """Id of the inspection for a request: one in progress, one whose answer was not delivered yet, or a new one."""
    with db.write() as session:
        earlier = session.scalar(
            select(Inspection.id).where(
                Inspection.request_hash == asked.request_hash,
                Inspection.told.is_(False),
                (Inspection.finished_at.is_(None)) | (Inspection.finished_at > utc_now() - ANSWER_TTL),
            )
        )
        if earlier is not None:
            return earlier
        row = Inspection(
            id=new_id("insp"),
            project=asked.project,
            request_hash=asked.request_hash,
            document=asked.document.to_json(),
            sealed_secrets=asked.sealed_secrets,
            fingerprint=asked.fingerprint,
        )
        session.add(row)
        session.flush()
        return row.id


def answer(db: Database, inspection_id: str) -> Report | None:
    """The report; None while the inspection is not done."""
    with db.read() as session:
        return session.scalar(select(Inspection.report).where(Inspection.id == inspection_id))


def mark_delivered(session: Session, inspection_id: str) -> None:
    """Mark the answer as delivered: the same request later starts a new inspection."""
    session.execute(
        update(Inspection)
        .where(Inspection.id == inspection_id)
        .values(told=True)
        .execution_options(synchronize_session=False)
    )


def waiting_before(session: Session, fingerprint: str) -> int:
    """Number of other unfinished inspections of models and data; equal ones count once."""
    rows = session.execute(
        select(Inspection.fingerprint, func.count())
        .where(Inspection.state != "done", _IS_OF_MODELS)
        .group_by(Inspection.fingerprint)
    )
    return sum(1 if row[0] else row[1] for row in rows if not row[0] or row[0] != fingerprint)


def open_ones(db: Database, *, of_models: bool | None = None) -> list[Open]:
    """Waiting and running inspections, oldest first; ``of_models``: only those of models and data, or only the others.

    Of each kind the oldest are read, so that many waiting files hide no job.
    """
    kind = (Inspection.file_id.is_not(None), Inspection.is_grading)
    number = func.row_number().over(partition_by=kind, order_by=Inspection.id).label("number")
    columns = (
        Inspection.id,
        Inspection.state,
        Inspection.holder,
        Inspection.counter,
        Inspection.fingerprint,
        Inspection.file_id,
        Inspection.is_grading,
    )
    unfinished = select(*columns, number).where(Inspection.state != "done")
    if of_models is not None:
        unfinished = unfinished.where(_IS_OF_MODELS if of_models else ~_IS_OF_MODELS)
    first = unfinished.subquery()
    query = select(*(first.c[column.name] for column in columns)).where(first.c.number <= _READ_AT_ONCE)
    with db.query() as connection:
        return [Open(**row._asdict()) for row in connection.execute(query.order_by(first.c.id))]


def claim(db: Database, seen: Open, me: str) -> InspectionTask | None:
    """Claim the inspection if it is unchanged; None when it was claimed by another process or is obsolete."""
    with db.write() as session:
        row = take(session, seen, me)
        if row is None:
            return None
        job = session.get(Job, row.job_id) if row.job_id is not None else None
        if row.job_id is not None and (job is None or job.state is not JobState.PENDING):
            finish(row, None)
            return None
        report = remembered(session, row.fingerprint)
        if report is None and row.tries > MOST_TRIES:
            report = {"left_out": [f"the preflight of model and data was aborted after {MOST_TRIES} tries"]}
        return InspectionTask(
            id=row.id,
            holder=me,
            job_id=row.job_id,
            project=row.project,
            report=report,
            document=job.document if job is not None else JobDocument.from_json(row.document or {}),
            sealed_secrets=job.sealed_secrets if job is not None else row.sealed_secrets,
        )


def take(session: Session, seen: Open, me: str) -> Inspection | None:
    """The row, if it is unchanged since it was seen: from now on it is this process's."""
    taken = session.scalar(
        update(Inspection)
        .where(
            Inspection.id == seen.id,
            Inspection.state == seen.state,
            Inspection.holder == seen.holder,
            Inspection.counter == seen.counter,
        )
        .values(state="running", holder=me, counter=Inspection.counter + 1, tries=Inspection.tries + 1)
        .returning(Inspection.id)
        .execution_options(synchronize_session=False)
    )
    return None if taken is None else session.get_one(Inspection, seen.id, populate_existing=True)


def renew(db: Database, work: InspectionClaim) -> bool:
    """Renew the claim; False when it was lost, or the result is not needed any more."""
    with db.write() as session:
        renewed = session.scalar(
            update(Inspection)
            .where(Inspection.id == work.id, Inspection.state == "running", Inspection.holder == work.holder)
            .values(counter=Inspection.counter + 1)
            .returning(Inspection.id)
            .execution_options(synchronize_session=False)
        )
        if renewed is None or work.job_id is None:
            return renewed is not None
        return session.scalar(select(Job.status).where(Job.id == work.job_id)) == JobState.PENDING


def close(session: Session, work: InspectionClaim, report: Report | None) -> bool:
    """Store the result in the caller's transaction; False when the claim was lost."""
    row = _claimed(session, work)
    if row is not None:
        finish(row, report)
    return row is not None


def release(session: Session, work: InspectionClaim, *, counts: bool) -> bool:
    """Return an inspection without a result to the queue; False when the claim was lost.

    ``counts``: as one of its tries.
    """
    row = _claimed(session, work)
    if row is not None:
        row.state, row.holder = "waiting", ""
        row.tries -= 0 if counts else 1
    return row is not None


def finish(row: Inspection, report: Report | None) -> None:
    """Close the row; ``report`` None: the result is not needed any more."""
    row.state, row.finished_at = "done", utc_now()
    row.document, row.sealed_secrets = None, ""  # secrets are not stored longer than needed
    if report is not None:
        # For fetched inputs the fingerprint is known only now.
        row.fingerprint = row.fingerprint or str(report.get("fingerprint", ""))
        row.report = {name: value for name, value in report.items() if name != "fingerprint"}
        row.verdict = verdict_of(report)


def drop_old(db: Database) -> None:
    """Delete outdated results, and requests that no coordinator has claimed."""
    now = utc_now()
    with db.write() as session:
        session.execute(
            delete(Inspection).where(
                Inspection.state == "done",
                (Inspection.finished_at < now - PASSED_TTL)
                | ((Inspection.finished_at < now - ANSWER_TTL) & Inspection.verdict.is_distinct_from(PASSED)),
            )
        )
        session.execute(
            delete(Inspection).where(
                Inspection.state == "waiting",
                Inspection.job_id.is_(None),
                Inspection.file_id.is_(None),
                Inspection.created_at < now - ANSWER_TTL,
            )
        )


def _claimed(session: Session, work: InspectionClaim) -> Inspection | None:
    row = session.get(Inspection, work.id, with_for_update=True, populate_existing=True)
    return row if row is not None and row.state == "running" and row.holder == work.holder else None
