"""Which replicas give way to other jobs: those above the minimum, also after it has changed."""

from datetime import timedelta

import pytest

from app.domain.lifecycle.states import JobState
from app.models.base import utc_now
from app.services.serving import commands
from tests.builders.factories import make_document, make_job, make_queue
from tests.builders.service_runs import CALLER, ServiceRun
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def test_a_raised_minimum_replaces_a_preemptible_replica_by_one_that_lasts(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 0, "max": 1})
    run.load(waiting=1, requests=1)
    run.step()
    run.answer(0)
    commands.change(run.plane, CALLER, "support", {"replicas": {"min": 1}})
    for _ in range(2):
        run.step()
    assert run.states() == ["SERVING", "PENDING"]
    assert [run.job(number).document.scheduling_config.preemptible for number in range(2)] == [True, False]
    assert (run.service().wanted, run.job(0).requested) == (1, None)
    run.answer(1)
    for _ in range(2):
        run.step()
    assert [run.job(number).requested for number in range(2)] == ["drain", None]
    run.end(0)
    run.step()
    assert run.states() == ["COMPLETED", "SERVING"]


def test_a_lowered_minimum_makes_replicas_preemptible(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 2, "max": 2})
    for number in range(2):
        run.step()
        run.answer(number)
    commands.change(run.plane, CALLER, "support", {"replicas": {"min": 1}})
    run.load(in_flight=2, requests=2)
    run.step()
    assert [run.job(number).document.scheduling_config.preemptible for number in range(2)] == [False, True]
    assert run.states() == ["SERVING", "SERVING"]
    version = run.job(1).version
    run.step()
    assert run.job(1).version == version


def test_replicas_of_a_service_that_gives_way_are_all_preemptible(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 2, "max": 2}, scheduling_config={"preemptible": True})
    for _ in range(2):
        run.step()
    assert run.states() == ["PENDING", "PENDING"]


@pytest.mark.parametrize(
    ("waiting", "requested"),
    [
        ({}, "drain"),
        ({"queued_at": "now"}, None),
        ({"queue": "gpu-large"}, None),
        ({"device_type": "cuda"}, None),
        ({"training_type": "REPLICA"}, None),
    ],
)
def test_a_replica_without_requests_ends_early_for_jobs_that_wait_for_its_devices(
    api: Api, waiting: dict[str, str], requested: str | None
) -> None:
    run = ServiceRun(api, replicas={"idle_seconds": 600}, resource_config={"gpu_count": 1, "device_type": "cpu"})
    run.load(waiting=1, requests=1)
    run.step()
    run.answer(0)
    run.load(requests=1)
    idle_since = utc_now() - timedelta(seconds=20)
    run.change(needed_at=idle_since, requested_at=idle_since)
    run.step()
    assert run.job(0).requested is None
    with run.plane.db.write() as session:
        job = make_job(session, state=JobState.QUEUED, document=make_document())
        job.queued_at = utc_now() if waiting.get("queued_at") else utc_now() - timedelta(seconds=6)
        if "queue" in waiting:
            make_queue(session, waiting["queue"])
            session.flush()
            job.queue = waiting["queue"]
        job.training_type = waiting.get("training_type", job.training_type)
        resources = job.document.resource_config.changed(device_type=waiting.get("device_type", "cpu"))
        job.spec = {**job.spec, "resource_config": resources.to_json()}
    run.step()
    assert run.job(0).requested == requested
