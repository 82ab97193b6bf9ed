"""Scripts that wait until a coordinator has asked an index for their packages, on both databases."""

from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.services.preflight import admission, inspections
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspection_queue import InspectionQueue
from app.services.preflight.inspections import Report
from tests.builders.admitting import admit
from tests.builders.factories import make_document
from tests.builders.inspecting import preflight
from tests.builders.walks import job_of, make_job

pytestmark = pytest.mark.both_databases

INSPECTING = InspectionSettings(rows=100, waiting=3)
RULES = ReadingRules(roots=())


def submitted(db: Database, **packages: Any) -> str:
    """A job that was admitted, or waits."""
    training = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}, "packages": packages}
    document = make_document(
        training_config={**training, "base_model": {"model_id": "none"}}, data_config={"sources": []}
    )
    job_id = make_job(db, document=document, framework="CUSTOM")
    admit(db, job_id, RULES, inspection=INSPECTING)
    return job_id


def report(db: Database, found: Report) -> None:
    """A coordinator's answer for the job that waits."""
    queue = InspectionQueue(db, "here:boot:1:1", is_dead=lambda _holder: False)
    (seen,) = queue.free([], 0.0)
    work = inspections.claim(db, seen, queue.me)
    assert work is not None
    admission.conclude(db, work, found)


def test_job_whose_packages_the_index_has_is_queued(database: Database) -> None:
    job_id = submitted(database, requirements=["a"])
    assert job_of(database, job_id).pending_reason == admission.RESOLVING

    report(database, {"packages": {"requirements": ["a"]}})

    assert job_of(database, job_id).state is JobState.QUEUED
    assert preflight(database, job_id).message == "the index has the packages"


def test_job_whose_packages_the_index_lacks_fails_before_it_takes_a_device(database: Database) -> None:
    job_id = submitted(database, requirements=["a"])

    report(database, {"errors": [{"error_type": "PACKAGES_FAILED", "message": "a can't be installed"}]})

    failed = job_of(database, job_id)
    assert (failed.state, failed.error_type, failed.attempt) == (JobState.FAILED, "PACKAGES_FAILED", 0)


@pytest.mark.parametrize(
    "packages",
    [
        {"lock": "a==1 --hash=sha256:" + "0" * 64},
        {"requirements": ["a"], "allow_source_builds": True},
        {"requirements_file": "pip-requirements.txt", "requirements_file_required": False},
    ],
)
def test_job_whose_packages_only_a_node_can_resolve_does_not_wait(database: Database, packages: dict[str, Any]) -> None:
    assert job_of(database, submitted(database, **packages)).state is JobState.QUEUED
