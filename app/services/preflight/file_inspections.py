"""Inspections of uploaded files: claimed by a coordinator, recorded in the file's row, and waited for by jobs.

They need no training libraries and have no node that could inspect in their place, so every coordinator runs them,
whether preflights are enabled or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, func
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec
from app.domain.files.inspection import MOST_PROBLEMS, shown
from app.domain.files.purposes import ERROR, PROCESSED, UPLOADED_STATUS
from app.domain.files.shapes import SHAPES
from app.domain.spec.document import uploads
from app.domain.spec.model import JobDocument
from app.models import File, Inspection, Job
from app.services.preflight import inspections
from app.services.preflight.inspections import MOST_TRIES, InspectionClaim, Open, Report

WAITS = "its file "  # begins the pending reason, before the file's id
_ID_CHARACTERS = len("file-") + 36
NO_RESULT = f"the inspection had no result {MOST_TRIES} times"
NO_REASON = "the coordinator that ran it ended"


@dataclass(frozen=True, kw_only=True)
class FileTask(InspectionClaim):
    """A claimed inspection of a file. ``report`` is set when there is nothing left to try."""

    file_id: str
    project: str
    purpose: str
    size_bytes: int
    report: Report | None = None


@dataclass(frozen=True, kw_only=True)
class FileHold:
    """Why a job can't be admitted: a file that it waits for (``waiting``), or one that makes it fail (``message``)."""

    waiting: str = ""
    cause: str = ""
    message: str = ""


def claim(db: Database, seen: Open, me: str) -> FileTask | None:
    """Claim the inspection of a file; None when it was claimed by another process, or the file is gone."""
    with db.write() as session:
        row = inspections.take(session, seen, me)
        if row is None:
            return None
        file = session.get(File, row.file_id)
        if file is None or file.status != UPLOADED_STATUS:
            inspections.finish(row, None)
            return None
        return FileTask(
            id=row.id,
            holder=me,
            file_id=file.id,
            project=file.project,
            purpose=file.purpose,
            size_bytes=file.size_bytes,
            report={"problems": [_given_up(row)]} if row.tries > MOST_TRIES else None,
        )


def conclude(db: Database, task: FileTask, report: Report) -> bool:
    """Record what was found in the file's row; False when another process has taken the inspection over.

    A report without a result returns the inspection to the queue; without ``unavailable`` that counts as a try, and
    the reason is kept.
    """
    with db.write() as session:
        # In the order of a deletion: the file before its inspection.
        file = session.get(File, task.file_id, with_for_update=True, populate_existing=True)
        if "problems" not in report:
            return _released(session, task, report)
        problems = _problems(report)
        found: Report = {"records": report.get("records"), "shape": report.get("shape")}
        if problems:
            found = {"errors": [{"error_type": "DATA_INVALID", "message": problems[0]}]}
        if not inspections.close(session, task, found):
            return False
        if file is not None:
            _record(file, report, problems)
        return True


def hold_of(session: Session, project: str, document: JobDocument) -> FileHold | None:
    """What keeps a job from its admission as far as its files say; None: nothing."""
    waits = None
    for file_id in _files_of(document):
        file = session.get(File, file_id)
        if file is None or file.project != project:
            return FileHold(
                cause="DATA_NOT_FOUND",
                message=f"{file_id} is not there any more; upload it again, and name the new file",
            )
        if file.status == ERROR:
            first, *others = file.status_details.split("\n")
            more = f" (and {len(others)} more)" if others else ""
            return FileHold(cause="DATA_INVALID", message=f"{file_id} ({file.filename}): {first}{more}")
        if file.status == UPLOADED_STATUS and waits is None:
            waits = FileHold(waiting=f"{WAITS}{file_id} is being inspected")
    return waits


def waits_for_file() -> ColumnElement[bool]:
    """Whether a job, by its pending reason, waits for a file that is not inspected yet."""
    waited_for = func.substr(Job.pending_reason, len(WAITS) + 1, _ID_CHARACTERS)
    is_open = exists().where(File.id == waited_for, File.status == UPLOADED_STATUS)
    return Job.pending_reason.startswith(WAITS) & is_open


def _released(session: Session, task: FileTask, report: Report) -> bool:
    counts = "unavailable" not in report
    if not inspections.release(session, task, counts=counts):
        return False
    if counts:
        reasons = [shown(str(each)) for each in report.get("left_out", [])]
        session.get_one(Inspection, task.id).report = {"left_out": reasons[:MOST_PROBLEMS]}
    return True


def _given_up(row: Inspection) -> str:
    reasons = (row.report or {}).get("left_out") or [NO_REASON]
    return f"{NO_RESULT}; the last time: {reasons[0]}"


def _files_of(document: JobDocument) -> list[str]:
    try:
        return sorted(file_id for file_id, _ in uploads(document))
    except BadSpec:  # submission refuses these; the node reports the error
        return []


def _record(file: File, report: Mapping[str, Any], problems: list[str]) -> None:
    file.status = ERROR if problems else PROCESSED
    file.status_details = "\n".join(problems)
    shape, records = report.get("shape"), report.get("records")
    file.shape = shape if shape in SHAPES else None
    if not problems and isinstance(records, int):
        file.records = records


def _problems(report: Report) -> list[str]:
    listed = report["problems"] if isinstance(report["problems"], list) else []
    return [shown(str(each)) for each in listed[:MOST_PROBLEMS]]
