"""Admission of one job, as after its message."""

from app.database.engine import Database
from app.domain.spec.locations.paths import ReadingRules
from app.services.preflight import admission
from app.services.preflight.admission import InspectionSettings


def admit(db: Database, job_id: str, rules: ReadingRules, *, inspection: InspectionSettings | None = None) -> bool:
    """Whether it changed."""
    return list(admission.admit_each(db, [job_id], rules, inspection=inspection)) == [job_id]
