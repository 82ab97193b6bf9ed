"""The life of a service: replicas start, answer, are scaled, replaced, drained and given up."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.serving.scaling import FAILURES_IN_A_ROW
from app.domain.serving.states import ServiceState
from app.domain.spec.model import BaseModel
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.inference.models import WantedModel
from app.services.jobs import submission
from app.services.jobs.control import requests as control_requests
from app.services.jobs.submission import Checked
from app.services.serving import commands
from tests.builders.service_runs import CALLER, ServiceRun
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

OTHER = WantedModel(base=BaseModel().changed(model_id="/srv/models/other"))


def test_replicas_that_always_run_are_started_and_replaced(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 2, "max": 2})
    run.step()
    assert run.states() == ["PENDING", "PENDING"]
    job = run.job(0)
    assert (job.kind, job.name, job.max_retries) == ("replica", "support-0", 0)
    assert job.labels == {"trainyard/service": run.id, "trainyard/replica": "0"}
    run.answer(0)
    run.answer(1)
    run.end(0, JobState.CANCELLED)
    run.step()
    assert run.states() == ["CANCELLED", "SERVING", "PENDING"]
    assert run.events().count("replica.ended") == 1


def test_a_service_without_requests_has_no_replica_and_the_first_request_starts_one(api: Api) -> None:
    run = ServiceRun(api)
    run.step()
    assert run.states() == []
    run.load(waiting=1, requests=1)
    run.step()
    assert run.states() == ["PENDING"]
    assert run.service().requested_at is not None


def test_only_replicas_whose_job_serves_with_the_same_fence_are_endpoints(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    assert run.endpoints() == []
    run.answer(0)
    (found,) = run.endpoints()
    assert (found.job_id, found.port, found.revision, found.number) == (run.job(0).id, 4000, 1, 0)
    with run.db.write() as session:
        session.get_one(type(run.job(0)), run.job(0).id).fence += 1
    assert run.endpoints() == []


def test_more_requests_than_the_target_start_replicas_that_give_way_to_others(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1, "max": 3, "target_in_flight": 2})
    run.step()
    run.answer(0)
    run.load(in_flight=5, requests=5)
    run.step()
    assert run.service().wanted == 1, "not before there was too much to do for some seconds"
    run.change(above_target_since=utc_now() - timedelta(seconds=6))
    run.step()
    assert run.service().wanted == 3
    preemptible = [run.job(number).document.scheduling_config.preemptible for number in range(3)]
    assert preemptible == [False, True, True]
    assert run.job(1).document.scheduling_config.on_preemption == "requeue"


def test_replicas_without_need_are_drained_and_the_last_one_too_where_none_has_to_run(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 0, "max": 2, "target_in_flight": 1, "idle_seconds": 60})
    run.load(waiting=2, requests=2)
    run.step()
    run.answer(0)
    run.answer(1)
    run.load(in_flight=1, requests=3)
    run.step()
    assert run.service().wanted == 2
    run.change(needed_at=utc_now() - timedelta(seconds=61))
    run.step()
    assert [run.job(number).requested for number in (0, 1)] == [None, "drain"]
    assert [found.number for found in run.endpoints()] == [0]
    run.end(1)
    run.load(requests=3)
    run.step()
    long_ago = utc_now() - timedelta(seconds=61)
    run.change(needed_at=long_ago, requested_at=long_ago)
    run.step()
    assert run.service().wanted == 0
    assert run.job(0).requested == "drain"
    run.end(0)
    run.step()
    assert run.states() == ["COMPLETED", "COMPLETED"]
    assert run.service().failures == 0


def test_a_replica_that_loads_longer_than_requests_wait_is_not_ended_meanwhile(api: Api) -> None:
    run = ServiceRun(api, replicas={"idle_seconds": 60})
    run.load(waiting=1, requests=1)
    run.step()
    run.prepare(0)
    run.load(requests=1)
    long_ago = utc_now() - timedelta(seconds=100)
    run.change(needed_at=long_ago, requested_at=long_ago)
    run.step()
    assert (run.states(), run.service().wanted) == (["PREPARING"], 1)
    run.answer(0)
    run.step()
    assert run.service().wanted == 1, "from now on it has a minute"
    run.change(needed_at=long_ago, requested_at=long_ago)
    run.step()
    assert run.service().wanted == 0


def test_a_replica_that_waits_for_devices_is_given_up_when_nobody_asks_any_more(api: Api) -> None:
    run = ServiceRun(api, replicas={"idle_seconds": 60})
    run.load(waiting=1, requests=1)
    run.step()
    run.load(requests=1)
    long_ago = utc_now() - timedelta(seconds=100)
    run.change(needed_at=long_ago, requested_at=long_ago)
    run.step()
    assert run.states() == ["CANCELLED"]


def test_steps_of_two_coordinators_at_once_start_each_replica_once(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 5, "max": 5})
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run.step) for _ in range(4)]:
            done.result()
    assert [replica.number for replica in run.replicas()] == [0, 1, 2, 3, 4]


def test_a_short_request_keeps_the_last_replica(api: Api) -> None:
    run = ServiceRun(api, replicas={"idle_seconds": 60})
    run.load(waiting=1, requests=1)
    run.step()
    run.answer(0)
    run.load(requests=2)
    run.change(needed_at=utc_now() - timedelta(seconds=61), requested_at=utc_now() - timedelta(seconds=30))
    run.step()
    assert run.service().wanted == 1


def test_counts_of_a_gateway_that_has_gone_are_forgotten(api: Api) -> None:
    run = ServiceRun(api)
    run.load(waiting=1, requests=1)
    run.step()
    with run.db.write() as session:
        session.connection().exec_driver_sql("UPDATE service_load SET at = '2020-01-01 00:00:00+00:00'")
    long_ago = utc_now() - timedelta(hours=1)
    run.change(needed_at=long_ago, requested_at=long_ago)
    run.step()
    assert run.service().wanted == 0


def test_counts_of_several_gateways_are_added(api: Api) -> None:
    run = ServiceRun(api, replicas={"max": 4, "target_in_flight": 1})
    run.load(waiting=1, requests=1)
    run.load(waiting=2, requests=2, gateway="h")
    run.step()
    assert run.service().wanted == 3


def test_a_changed_model_is_rolled_over_and_old_replicas_answer_until_new_ones_do(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    run.answer(0)
    commands.change(run.plane, CALLER, "support", {"model": OTHER})
    run.step()
    assert run.states() == ["SERVING", "PENDING"]
    assert [found.number for found in run.endpoints()] == [0]
    run.answer(1)
    assert [found.revision for found in run.endpoints()] == [2, 1], "the newest revision first"
    run.step()
    assert run.job(0).requested == "drain"
    assert [found.number for found in run.endpoints()] == [1]
    assert run.job(1).document.training_config.base_model.model_id == "/srv/models/other"
    assert run.service().model_key == "/srv/models/other"


def test_where_new_replicas_wait_for_devices_an_old_one_gives_up_its_own(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    run.answer(0)
    commands.change(run.plane, CALLER, "support", {"model": OTHER})
    run.step()
    with run.db.write() as session:
        job = session.get_one(type(run.job(1)), run.job(1).id)
        job.status, job.queued_at = JobState.QUEUED, utc_now() - timedelta(seconds=29)
    run.step()
    assert run.job(0).requested is None
    with run.db.write() as session:
        session.get_one(type(run.job(1)), run.job(1).id).queued_at = utc_now() - timedelta(seconds=31)
    run.step()
    assert run.job(0).requested == "drain"


def test_replicas_that_fail_delay_the_next_one_until_the_service_says_so(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    for number in range(FAILURES_IN_A_ROW):
        run.change(not_before_at=None)
        run.step()
        run.fail(number)
        run.step()
    service = run.service()
    assert service.failures == FAILURES_IN_A_ROW
    assert "no such tensor" in service.pending_reason
    assert service.not_before_at is not None
    assert service.not_before_at > utc_now() + timedelta(minutes=4)
    assert run.events().count("service.failing") == 1
    assert len(run.states()) == FAILURES_IN_A_ROW, "none is started until then"
    commands.resume(run.plane, CALLER, run.id)
    run.step()
    assert run.states()[-1] == "PENDING"
    assert run.service().failures == 0


def test_a_replica_that_answers_ends_a_row_of_failures(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 2, "max": 2})
    run.step()
    run.answer(0)
    run.fail(1)
    run.step()
    assert run.service().failures == 1, "the other one answered before that"
    run.change(not_before_at=None)
    run.step()
    run.answer(2)
    run.step()
    assert (run.service().failures, run.service().pending_reason) == (0, "")


def test_a_service_whose_key_has_ended_says_so_until_it_is_resumed_with_another(api: Api) -> None:
    gone = Caller(key_id="key-gone", role=Role.USER, project="default")
    run = ServiceRun(api, caller=gone, replicas={"min": 1})
    run.step()
    assert run.states() == []
    assert "revoked or expired" in run.service().pending_reason
    commands.resume(run.plane, CALLER, "support")
    run.step()
    assert run.states() == ["PENDING"]


def test_a_paused_service_drains_what_serves_and_cancels_what_starts(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 2, "max": 2})
    run.step()
    run.answer(0)
    commands.pause(run.plane, CALLER, "support")
    run.step()
    assert run.states() == ["SERVING", "CANCELLED"]
    assert run.job(0).requested == "drain"
    run.end(0)
    run.step()
    assert run.states() == ["COMPLETED", "CANCELLED"]
    commands.resume(run.plane, CALLER, "support")
    run.step()
    assert run.states() == ["COMPLETED", "CANCELLED", "PENDING", "PENDING"]


def test_a_replica_that_lost_its_node_while_it_drained_is_cancelled(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    run.answer(0)
    commands.pause(run.plane, CALLER, "support")
    run.step()
    with run.db.write() as session:
        job = session.get_one(type(run.job(0)), run.job(0).id)
        job.status, job.requested = JobState.QUEUED, None
    run.step()
    assert run.states() == ["CANCELLED"]


def test_a_deleted_service_ends_when_its_replicas_have_ended_and_frees_its_name(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    run.answer(0)
    commands.delete(run.plane, CALLER, "support")
    run.step()
    assert run.service().status == ServiceState.ENDING
    run.end(0)
    run.step()
    assert run.service().status == ServiceState.ENDED
    assert ServiceRun(api).id != run.id


def test_a_replica_that_somebody_cancels_while_it_serves_gets_no_new_requests(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    run.answer(0)
    with run.db.write() as session:
        control_requests.request_cancel(session, run.job(0).id, actor="cli")
    assert run.endpoints() == []


def test_a_replica_that_is_refused_delays_the_next_one_although_another_one_answers(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1, "max": 2})
    run.step()
    run.answer(0)
    base = run.service().base
    queue = {**base["scheduling_config"], "queue": "gone"}
    run.change(wanted=2, base={**base, "scheduling_config": queue}, needed_at=utc_now())
    for _ in range(2):
        run.change(not_before_at=None)
        run.step()
    run.step()
    service = run.service()
    assert (service.failures, run.states()) == (2, ["SERVING"])
    assert "was refused" in service.pending_reason
    assert service.not_before_at is not None
    run.change(not_before_at=None, base=base)
    run.step()
    run.answer(1)
    run.step()
    assert (run.service().failures, run.service().pending_reason) == (0, "")


def test_a_replica_is_not_preemptible_if_it_is_needed_by_the_time_that_it_is_stored(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ServiceRun(api, replicas={"min": 0, "max": 1})
    run.load(waiting=1, requests=1)
    check = submission.check

    def slow(*arguments: Any, **named: Any) -> Checked:
        checked = check(*arguments, **named)
        run.change(spec={**run.service().spec, "replicas": {"min": 1, "max": 1}})
        return checked

    monkeypatch.setattr(submission, "check", slow)
    for _ in range(2):
        run.step()
    assert run.states() == ["PENDING"]
    assert not run.job(0).document.scheduling_config.preemptible


def test_a_reason_why_there_are_too_few_replicas_goes_when_there_are_enough(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1, "max": 2, "idle_seconds": 60})
    run.change(wanted=2, needed_at=utc_now())
    run.step()
    run.answer(0)
    run.fail(1)
    run.step()
    assert "no such tensor" in run.service().pending_reason
    long_ago = utc_now() - timedelta(seconds=61)
    run.change(needed_at=long_ago, requested_at=long_ago)
    run.step()
    assert (run.service().wanted, run.service().failures, run.service().pending_reason) == (1, 1, "")
