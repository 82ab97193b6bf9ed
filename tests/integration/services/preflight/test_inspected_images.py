"""The images of scripts before their jobs start: asked for at the registry, left to the node, or missing."""

from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.services.preflight import admission
from app.services.preflight.inspection_queue import InspectionQueue
from tests.builders.admitting import admit
from tests.builders.inspecting import INSPECTING, claim, document, preflight, reading_rules
from tests.builders.walks import job_of, make_job

pytestmark = pytest.mark.both_databases


@pytest.fixture
def rules(tmp_path: Path) -> ReadingRules:
    return reading_rules(tmp_path)


@pytest.fixture
def line(database: Database) -> InspectionQueue:
    return InspectionQueue(database, "here:boot:1:1", is_dead=lambda _holder: False)


def test_script_waits_for_its_image_to_be_found_in_the_registry_each_time(database, rules, line):
    image = {"gpu_count": 1, "image": {"reference": "registry.example/team/tool:v1"}}
    asked = {**document(rules), "resource_config": image}
    first, second = (make_job(database, document=asked, framework="CUSTOM") for _ in range(2))

    admit(database, first, rules, inspection=INSPECTING)
    assert job_of(database, first).pending_reason == admission.ASKING
    admission.conclude(database, claim(database, line), {"image": {"reference": "registry.example/team/tool:v1"}})
    admit(database, second, rules, inspection=INSPECTING)

    assert [job_of(database, each).state for each in (first, second)] == [JobState.QUEUED, JobState.PENDING]
    assert preflight(database, first).message == "the registry has the image"


def test_script_whose_image_is_read_by_its_node_does_not_wait(database, rules):
    never = {"reference": "registry.example/team/tool:v1", "pull_policy": "never"}
    layout = {"reference": f"oci:{rules.roots[1]}"}
    for image in (never, layout):
        asked = {**document(rules), "resource_config": {"gpu_count": 1, "image": image}}
        job_id = make_job(database, document=asked, framework="CUSTOM")
        admit(database, job_id, rules, inspection=INSPECTING)
        assert job_of(database, job_id).state is JobState.QUEUED


def test_image_that_is_not_in_its_storage_root_fails_the_job(database, rules):
    image = {"reference": f"oci:{rules.roots[1]}/missing:v1"}
    asked = {**document(rules), "resource_config": {"gpu_count": 1, "image": image}}
    job_id = make_job(database, document=asked, framework="CUSTOM")

    admit(database, job_id, rules, inspection=INSPECTING)

    job = job_of(database, job_id)
    assert (job.state, job.error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert f"image {rules.roots[1]}/missing does not exist" in str(job.error_message)
