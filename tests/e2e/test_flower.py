"""Flower beside the whole system: an operator sees a job by its name while it trains, and cancels it there."""

import json
from collections.abc import Iterator

import pytest

from tests.systems.flower_site import FlowerSite
from tests.systems.installations import counting_job, running_system
from tests.systems.system import System, wait_for

pytestmark = pytest.mark.long

CANCEL = '<button class="btn btn-danger" id="task-terminate">Cancel job</button>'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[tuple[System, FlowerSite]]:
    flower = FlowerSite("pass-of-a-test")
    with running_system(tmp_path_factory.mktemp("flower"), owned_pids, "n1", **flower.settings) as system:
        try:
            owned_pids.add(flower.start(system).pid)
            flower.wait_until_up()
            yield system, flower
        finally:
            flower.stop()


def test_a_job_is_seen_live_and_cancelled(site: tuple[System, FlowerSite]) -> None:
    system, flower = site

    job_id = system.submit(counting_job(steps=5000, step_seconds=0.05, name="nightly run"))
    shown = flower.wait_for_state(job_id, "TRAINING")
    offered = CANCEL in flower.page(f"/task/{job_id}")
    forged = flower.call("POST", f"/api/task/revoke/{job_id}?terminate=true", Sec_Fetch_Site="cross-site")[0]
    unharmed = system.job(job_id)["status"]
    strangers = flower.call("GET", "/metrics", Authorization="")[0]
    asked = flower.call("POST", f"/api/task/revoke/{job_id}?terminate=true", Sec_Fetch_Site="same-origin")[0]
    job = system.wait_for_status(job_id, "CANCELLED", seconds=30)
    flower.wait_for_state(job_id, "CANCELLED")
    wait_for(lambda: not system.processes_of(job_id), seconds=5, what="no process of the job left")

    assert (shown["name"], shown["worker"]) == ("SFT:nightly run", "node@n1")
    assert "'queue': 'default'" in shown["kwargs"]
    assert (offered, forged, unharmed, asked) == (True, 403, "TRAINING", 200)
    assert strangers == 401  # the metrics name jobs
    assert job["error_type"] is None
    assert CANCEL not in flower.page(f"/task/{job_id}")


def test_a_completed_job_is_a_success_with_its_runtime(site: tuple[System, FlowerSite]) -> None:
    system, flower = site

    job_id = system.submit(counting_job(steps=4, step_seconds=0.3, name="short run"))
    system.wait_for_status(job_id, "COMPLETED", seconds=60)
    shown = flower.wait_for_state(job_id, "SUCCESS")

    assert shown["name"] == "SFT:short run"
    assert shown["runtime"] == pytest.approx(system.job(job_id)["elapsed_seconds"], abs=0.01)
    assert shown["runtime"] > 1
    assert '<span class="badge text-bg-success">SUCCESS</span>' in flower.page(f"/task/{job_id}")


def test_an_ended_job_stays_visible_with_its_reason(site: tuple[System, FlowerSite]) -> None:
    system, flower = site
    (system.inputs / "broken.py").write_text("raise RuntimeError('the reason')\n")
    document = counting_job(name="broken")
    document["training_config"]["framework"]["custom_script_path"] = "broken.py"

    job_id = system.submit(document)
    shown = flower.wait_for_state(job_id, "FAILURE", seconds=60)

    assert shown["name"] == "SFT:broken"
    assert shown["exception"].startswith("SCRIPT_ERROR: ")
    assert shown["runtime"] == pytest.approx(system.job(job_id)["elapsed_seconds"], abs=0.01)
    listed = json.loads(flower.page("/api/tasks"))
    assert job_id in listed
    assert listed.keys() <= {job["job_id"] for job in system.get("/v1/jobs")["jobs"]}  # wake-up messages are not listed
    assert "Training</button>" in flower.page("/tasks")
