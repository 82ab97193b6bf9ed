"""Inspections as rows: asked for once, claimed by one coordinator, remembered by what decided their result."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.models import Inspection, Job
from app.models.base import utc_now

PASSED, FAILED, LEFT = "passed", "failed", "left"
MOST_TRIES = 3
# What passed is true as long as the files are the same. What failed is looked at again before long: the cause may
# lie in what no fingerprint holds, such as an installed package.
PASSED_KEPT = timedelta(days=7)
FAILED_KEPT = timedelta(minutes=10)
ANSWER_KEPT = timedelta(minutes=10)  # for somebody who asked and was told to ask again
_LOOKED_AT_ONCE = 100

Report = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Open:
    """One that waits, or that somebody works on, as every coordinator sees it."""

    id: str
    state: str
    holder: str
    counter: int
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Work:
    """A claimed inspection. ``report`` is set when the same was looked at before."""

    id: str
    holder: str
    job_id: str | None
    project: str
    spec: Mapping[str, Any]
    sealed_secrets: str
    report: Report | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A look that a person asked for."""

    project: str
    document: Mapping[str, Any]
    sealed_secrets: str
    request_hash: str
    fingerprint: str


def verdict_of(report: Report) -> str:
    """A report with an error has failed; one that left something to the node says nothing about later times."""
    if report.get("errors"):
        return FAILED
    return LEFT if report.get("left_out") else PASSED


def remembered(session: Session, fingerprint: str) -> Report | None:
    """The report on the same model, data and configuration, if somebody has looked at them."""
    if not fingerprint:
        return None
    now = utc_now()
    row = session.execute(
        select(Inspection.report)
        .where(
            Inspection.fingerprint == fingerprint,
            ((Inspection.verdict == PASSED) & (Inspection.finished_at > now - PASSED_KEPT))
            | ((Inspection.verdict == FAILED) & (Inspection.finished_at > now - FAILED_KEPT)),
        )
        .order_by(Inspection.finished_at.desc())
        .limit(1)
    ).first()
    return {**row.report, "remembered": True} if row is not None else None


def demand(session: Session, job: Job, fingerprint: str) -> bool:
    """Ask for a look at a job's model and data; False when somebody has asked already. The caller holds the job."""
    if session.scalar(select(Inspection.id).where(Inspection.job_id == job.id)) is not None:
        return False
    session.add(Inspection(id=new_id("insp"), project=job.project, job_id=job.id, fingerprint=fingerprint))
    return True


def ask(db: Database, asked: Asked) -> str:
    """The id of the inspection that answers a request: one under way, one whose answer nobody has heard, or a new."""
    with db.write() as session:
        earlier = session.scalar(
            select(Inspection.id).where(
                Inspection.request_hash == asked.request_hash,
                Inspection.told.is_(False),
                (Inspection.finished_at.is_(None)) | (Inspection.finished_at > utc_now() - ANSWER_KEPT),
            )
        )
        if earlier is not None:
            return earlier
        row = Inspection(
            id=new_id("insp"), project=asked.project, request_hash=asked.request_hash, document=dict(asked.document),
            sealed_secrets=asked.sealed_secrets, fingerprint=asked.fingerprint,
        )  # fmt: skip
        session.add(row)
        session.flush()
        return row.id


def answer(db: Database, inspection_id: str) -> Report | None:
    """The report, once there is one."""
    with db.read() as session:
        return session.scalar(select(Inspection.report).where(Inspection.id == inspection_id))


def mark_told(session: Session, inspection_id: str) -> None:
    """The same request later means a new look."""
    session.execute(
        update(Inspection)
        .where(Inspection.id == inspection_id)
        .values(told=True)
        .execution_options(synchronize_session=False)
    )


def waiting_before(session: Session, fingerprint: str) -> int:
    """How many other looks are not done yet; of equal ones one is worth counting."""
    rows = session.execute(
        select(Inspection.fingerprint, func.count()).where(Inspection.state != "done").group_by(Inspection.fingerprint)
    )
    return sum(1 if row[0] else row[1] for row in rows if not row[0] or row[0] != fingerprint)


def open_ones(db: Database) -> list[Open]:
    """What waits or is worked on, the oldest first."""
    with db.read() as session:
        rows = session.scalars(
            select(Inspection).where(Inspection.state != "done").order_by(Inspection.id).limit(_LOOKED_AT_ONCE)
        )
        return [
            Open(id=row.id, state=row.state, holder=row.holder, counter=row.counter, fingerprint=row.fingerprint)
            for row in rows
        ]


def claim(db: Database, seen: Open, me: str) -> Work | None:
    """Take it as it was seen; None when somebody was faster, or nothing is left to look at."""
    with db.write() as session:
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
        if taken is None:
            return None
        row = session.get_one(Inspection, seen.id, populate_existing=True)
        job = session.get(Job, row.job_id) if row.job_id is not None else None
        if row.job_id is not None and (job is None or job.state is not JobState.PENDING):
            _close(row, None)
            return None
        report = remembered(session, row.fingerprint)
        if report is None and row.tries > MOST_TRIES:
            report = {"left_out": [f"the preflight of model and data was aborted after {MOST_TRIES} tries"]}
        return Work(
            id=row.id, holder=me, job_id=row.job_id, project=row.project, report=report,
            spec=job.spec if job is not None else row.document or {},
            sealed_secrets=job.sealed_secrets if job is not None else row.sealed_secrets,
        )  # fmt: skip


def renew(db: Database, work: Work) -> bool:
    """Show that somebody is at it; False when it was taken away, or nobody waits for the result any more."""
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


def close(session: Session, work: Work, report: Report | None) -> bool:
    """Write the result down in the caller's transaction; False when it was taken away meanwhile."""
    row = session.get(Inspection, work.id, with_for_update=True, populate_existing=True)
    if row is None or row.state != "running" or row.holder != work.holder:
        return False
    _close(row, report)
    return True


def drop_old(db: Database) -> None:
    """Forget what is neither news nor worth remembering, and questions that nobody has taken up."""
    now = utc_now()
    with db.write() as session:
        session.execute(
            delete(Inspection).where(
                Inspection.state == "done",
                (Inspection.finished_at < now - PASSED_KEPT)
                | ((Inspection.finished_at < now - ANSWER_KEPT) & Inspection.verdict.is_distinct_from(PASSED)),
            )
        )
        session.execute(
            delete(Inspection).where(
                Inspection.state == "waiting", Inspection.job_id.is_(None), Inspection.created_at < now - ANSWER_KEPT
            )
        )


def _close(row: Inspection, report: Report | None) -> None:
    """None: nobody wants to know any more."""
    row.state, row.finished_at = "done", utc_now()
    row.document, row.sealed_secrets = None, ""  # a secret is kept no longer than it is needed
    if report is not None:
        # Of what had to be fetched the fingerprint is known only now.
        row.fingerprint = row.fingerprint or str(report.get("fingerprint", ""))
        row.report = {name: value for name, value in report.items() if name != "fingerprint"}
        row.verdict = verdict_of(report)
