"""Jobs to inspect: their documents below a storage root, and the claims and events of their inspections."""

import os
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.spec.locations.paths import ReadingRules
from app.models import JobEvent
from app.services.preflight import inspections
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspection_queue import InspectionQueue
from app.services.preflight.inspections import InspectionTask
from tests.builders.factories import make_document

INSPECTING = InspectionSettings(rows=100, waiting=3)


def reading_rules(tmp_path: Path) -> ReadingRules:
    """A root with a model and data, and the folder of uploaded files."""
    root = tmp_path / "inputs"
    (root / "model").mkdir(parents=True)
    (root / "model" / "config.json").write_text("{}")
    (root / "train.jsonl").write_text("{}\n")
    (tmp_path / "files").mkdir()
    return ReadingRules(roots=(str(tmp_path / "files"), str(root)), real_path=os.path.realpath)


def document(rules: ReadingRules, **changes: Any) -> dict[str, Any]:
    made = make_document(
        training_config={"base_model": {"model_id": f"{rules.roots[1]}/model"}},
        data_config={"sources": [{"path": f"{rules.roots[1]}/train.jsonl", "format": "jsonl"}]},
    )
    made["data_config"].update(changes)
    return made


def claim(db: Database, line: InspectionQueue, now: float = 0.0) -> InspectionTask:
    (seen,) = line.free([], now)[:1]
    work = inspections.claim(db, seen, line.me)
    assert work is not None
    return work


def preflight(db: Database, job_id: str) -> JobEvent:
    with db.read() as session:
        (event,) = session.scalars(
            select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.type == EventType.PREFLIGHT)
        ).all()
        return event
