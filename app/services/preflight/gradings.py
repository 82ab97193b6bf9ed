"""Runs of Python graders that clients ask for: claimed by a coordinator, run in a sandbox, and answered once.

They need no training libraries, so every coordinator runs them, whether preflights are enabled or not.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete

from app.database.engine import Database
from app.domain.files.inspection import shown
from app.domain.ids import new_id
from app.models import Inspection
from app.services.preflight import inspections
from app.services.preflight.inspections import MOST_TRIES, InspectionClaim, Open, Report

POLL_SECONDS = 0.1
_QUESTION = "question"
_GIVEN_UP = f"the coordinators that ran the grader ended {MOST_TRIES} times"


@dataclass(frozen=True, kw_only=True)
class GradingTask(InspectionClaim):
    """A claimed run. ``question``: the JSON of {source, sample, item}. ``report`` is set when there is nothing left to
    try.
    """

    project: str
    question: str
    report: Report | None = None


def report_of(
    db: Database, project: str, source: str, sample: Mapping[str, Any], item: object, seconds: float
) -> Report:
    """{reward}, {runtime_error}, or {unavailable}, also where none answers within so many seconds."""
    deadline = time.monotonic() + seconds
    grading_id = _request(db, project, source, sample, item)
    try:
        while time.monotonic() < deadline:
            report = inspections.answer(db, grading_id)
            if report is not None:
                return report
            time.sleep(POLL_SECONDS)
    finally:
        _drop(db, grading_id)
    return {"unavailable": f"no coordinator has answered within {seconds:.0f} s"}


def claim(db: Database, seen: Open, me: str) -> GradingTask | None:
    """Claim a run; None when it was claimed by another process, or is not needed any more."""
    with db.write() as session:
        row = inspections.take(session, seen, me)
        if row is None:
            return None
        return GradingTask(
            id=row.id,
            holder=me,
            project=row.project,
            question=(row.document or {}).get(_QUESTION, ""),
            report={"unavailable": _GIVEN_UP} if row.tries > MOST_TRIES else None,
        )


def conclude(db: Database, task: GradingTask, report: Report) -> bool:
    """Store the report for who waits for it; False when the claim was lost."""
    with db.write() as session:
        if not inspections.close(session, task, _storable(report)):
            return False
        session.get_one(Inspection, task.id).verdict = None  # no result to remember
        return True


def _request(db: Database, project: str, source: str, sample: Mapping[str, Any], item: object) -> str:
    """Request a run; the id under which its report is."""
    with db.write() as session:
        # As a text: what a model wrote may be JSON that databases can't store.
        question = json.dumps({"source": source, "sample": dict(sample), "item": item})
        row = Inspection(id=new_id("insp"), project=project, is_grading=True, document={_QUESTION: question})
        session.add(row)
        session.flush()
        return row.id


def _storable(report: Report) -> Report:
    """What a grader says, as far as a database can store it."""
    reward = report.get("reward")
    if isinstance(reward, float) and math.isfinite(reward):
        return {"reward": reward}
    kind = next((name for name in ("runtime_error", "unavailable") if name in report), "runtime_error")
    reasons = [str(each) for each in (report.get(kind), *report.get("left_out", [])) if each]
    return {kind: shown(reasons[0] if reasons else "the grader has no result")}


def _drop(db: Database, grading_id: str) -> None:
    """Delete a run with its report; one that has not ended ends when its holder sees that."""
    with db.write() as session:
        session.execute(
            delete(Inspection).where(Inspection.id == grading_id).execution_options(synchronize_session=False)
        )
