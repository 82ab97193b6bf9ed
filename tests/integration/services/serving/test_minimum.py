"""Which replicas give way to other jobs: those above the minimum, also after it has changed."""

import pytest

from app.services.serving import commands
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
