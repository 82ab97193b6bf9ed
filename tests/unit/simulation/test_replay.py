"""Replays of a few jobs whose schedule can be derived by hand. A planner pass runs once a second."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Plan
from app.domain.scheduling.resources import GpuType, Request
from simulation.jobs import Behaviour
from simulation.planners import POLICIES, first_come
from simulation.replay import Planner, replay
from simulation.site import PassInput
from simulation.trace import TraceJob
from tests.builders.simulated import IDEAL, RESERVE_AFTER, make_site, make_traced, outcomes, replayed, spans


def test_a_job_runs_for_as_long_as_its_start_and_its_work_take() -> None:
    done = replayed([make_traced(5, 100, job_id="j")], make_site(1), behaviour=Behaviour(start_seconds=10))

    assert spans(outcomes(done)["j"]) == [(5, 115)]
    assert outcomes(done)["j"].wait_seconds == 0
    assert done.ended_at == 115


def test_a_job_without_free_devices_starts_when_another_ends() -> None:
    trace = [make_traced(0, 100, job_id="first"), make_traced(1, 50, job_id="second")]

    found = outcomes(replayed(trace, make_site(1)))

    assert spans(found["second"]) == [(100, 150)]
    assert found["second"].wait_seconds == 99
    assert "needs 1 GPU" in found["second"].pending_reason


def test_what_can_never_start_is_refused_as_at_submit() -> None:
    large = make_traced(gpus=3, job_id="large")
    beyond = make_traced(gpus=2, project="small", job_id="beyond")

    found = outcomes(replayed([large, beyond], make_site(2, quotas={"small": {"limit": 1}})))

    said = "needs 3 GPUs on one node; no ready node has that: n0 has 2 of 3 such devices"
    assert found["large"].refused == said
    assert found["beyond"].refused.startswith("the project small may use at most 1 GPUs")
    assert found["large"].wait_seconds is None


def test_a_preempted_job_resumes_with_the_work_it_had_left() -> None:
    trace = [
        make_traced(0, 1000, job_id="low", priority=1, is_preemptible=True),
        make_traced(400, 100, job_id="high", priority=9),
    ]

    found = outcomes(replayed(trace, make_site(1), behaviour=Behaviour(start_seconds=10, save_seconds=20)))

    # It has worked for 390 s when it is preempted, saves for 20 s, and starts again when the other job has ended.
    assert spans(found["high"]) == [(420, 530)]
    assert spans(found["low"]) == [(0, 420), (530, 530 + 10 + 610)]
    assert (found["low"].preemptions, found["low"].lost_seconds) == (1, 0)


def test_of_a_job_that_does_not_save_when_asked_the_work_since_its_checkpoint_is_done_again() -> None:
    trace = [
        make_traced(0, 1000, job_id="low", priority=1, is_preemptible=True),
        make_traced(450, 100, job_id="high", priority=9),
    ]
    forgets = replace(IDEAL, checkpoint_seconds=200, saves_when_asked=False)

    found = outcomes(replayed(trace, make_site(1), behaviour=forgets))

    assert found["low"].lost_seconds == 50
    assert spans(found["low"]) == [(0, 450), (551, 1151)]


def test_a_job_that_is_nearly_done_ends_instead_of_saving() -> None:
    trace = [
        make_traced(0, 100, job_id="low", priority=1, is_preemptible=True),
        make_traced(90, 50, job_id="high", priority=9),
    ]

    found = outcomes(replayed(trace, make_site(1), behaviour=replace(IDEAL, save_seconds=20)))

    assert spans(found["low"]) == [(0, 100)]
    assert found["low"].preemptions == 0
    assert spans(found["high"]) == [(100, 150)]


def test_no_job_is_preempted_before_its_minimum_run_time() -> None:
    trace = [
        make_traced(0, 1000, job_id="low", priority=1, is_preemptible=True, min_runtime_seconds=300),
        make_traced(10, 50, job_id="high", priority=9),
    ]

    assert spans(outcomes(replayed(trace, make_site(1)))["high"]) == [(301, 351)]
    assert spans(outcomes(replayed(trace, make_site(1), "no-preempt"))["high"]) == [(1000, 1050)]


def test_a_project_reclaims_what_it_deserves_from_a_borrower() -> None:
    trace = [make_traced(0, 1000, project="b", is_preemptible=True) for _ in range(4)]
    trace += [make_traced(100, 100, project="a", job_id=f"own{number}") for number in range(2)]

    done = replayed(trace, make_site(4, quotas={"a": {"deserved": 2}}))

    assert [spans(outcomes(done)[f"own{number}"]) for number in range(2)] == [[(101, 201)], [(101, 201)]]
    assert sum(outcome.preemptions for outcome in done.outcomes) == 2


def test_a_node_is_reserved_only_for_a_job_that_has_waited_long() -> None:
    small = [make_traced(at, 1000) for at in range(0, 8000, 500)]
    large = make_traced(600, 100, gpus=2, job_id="large")

    kept = outcomes(replayed([*small, large], make_site(2)))["large"]
    passed = outcomes(replayed([*small, large], make_site(2), "no-reserve"))["large"]

    assert kept.wait_seconds is not None
    assert passed.wait_seconds is not None
    assert RESERVE_AFTER <= kept.wait_seconds <= RESERVE_AFTER + 1000
    assert passed.wait_seconds > 7000


def test_naive_policies_serve_in_order_of_arrival_and_only_first_fit_lets_jobs_pass() -> None:
    trace = [
        make_traced(0, 100, job_id="runs"),
        make_traced(1, 100, gpus=2, job_id="large", priority=0),
        make_traced(2, 10, job_id="small", priority=9),
    ]

    fifo, first_fit = (outcomes(replayed(trace, make_site(2), name)) for name in ("fifo", "first-fit"))

    assert (spans(fifo["large"]), spans(fifo["small"])) == ([(100, 200)], [(200, 210)])
    assert (spans(first_fit["large"]), spans(first_fit["small"])) == ([(100, 200)], [(2, 12)])


def test_the_first_node_by_name_that_has_room_is_taken() -> None:
    a100 = Request(device_kind="cuda", gpu_types=(GpuType("a100"),))
    trace = [make_traced(job_id="j"), replace(make_traced(job_id="typed"), request=a100)]

    done = replay(trace, make_site(1, 1), first_come(passing=True))

    assert outcomes(done)["j"].stays[0].nodes == ("n0",)
    assert outcomes(done)["typed"].refused.startswith(
        "needs 1 a100 on one node; no ready node has that: n0 has no a100"
    )


def test_planner_passes_run_only_after_changes() -> None:
    trace = [make_traced(0, 1e6), make_traced(1, 1e6), make_traced(2.5, 1e6)]

    assert (
        replayed(trace, make_site(2)).passes == 5
    )  # three arrivals, one end, and one job that has waited for 30 minutes


def test_planner_passes_keep_a_minimum_interval() -> None:
    times: list[float] = []

    replayed(
        [make_traced(at / 10, 50) for at in range(30)],
        make_site(1),
        pass_seconds=2.0,
        watch=lambda view: times.append(view.now),
    )

    assert times[:2] == [0, 2]
    assert all(after - before >= 2 for before, after in pairwise(times))


def test_a_planner_that_gives_out_busy_devices_is_detected() -> None:
    def careless(view: PassInput) -> Plan:
        node = view.nodes[0]
        jobs = [job for line in view.lines.values() for job in line]
        placements = [Placement(job_id=job.job_id, node=node.name, devices=node.devices[:1]) for job in jobs]
        return Plan(placements=tuple(placements), pending_reasons={}, nodes=())

    with pytest.raises(ValueError, match="more than is free"):
        replay([make_traced(0), make_traced(1)], make_site(1), Planner(decide=careless))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_of_several_nodes_has_all_of_them_or_none(policy: str) -> None:
    trace = [
        make_traced(0, 100, job_id="first"),
        make_gang(1, 50, gpus=2, job_id="pair"),
        make_gang(1, 50, gpus=3, job_id="too large"),
    ]

    found = outcomes(replayed(trace, make_site(2, 2), policy))

    assert [(stay.started_at, stay.ended_at, stay.nodes) for stay in found["pair"].stays] == [(100, 150, ("n0", "n1"))]
    assert found["pair"].stays[0].amount == 4
    assert found["too large"].refused.startswith("needs 3 GPUs on each of 2 nodes, all of one type; no ready node")


def test_a_preempted_job_of_several_nodes_gives_all_of_them_back() -> None:
    trace = [
        make_gang(0, 1000, gpus=2, job_id="low", priority=1, is_preemptible=True),
        make_gang(400, 100, gpus=1, job_id="high", priority=9),
        make_traced(401, 10, gpus=1, job_id="single"),
    ]

    found = outcomes(replayed(trace, make_site(2, 2), behaviour=replace(IDEAL, save_seconds=20)))

    assert spans(found["high"]) == [(420, 520)]
    assert spans(found["single"]) == [(420, 430)]
    assert spans(found["low"]) == [(0, 420), (520, 1120)]


def make_gang(at: float, seconds: float, *, gpus: int, job_id: str, **more: Any) -> TraceJob:
    made = make_traced(at, seconds, gpus=gpus, job_id=job_id, **more)
    return replace(made, request=replace(made.request, node_count=2))


def test_a_planner_that_starts_no_job_ends_the_replay() -> None:
    def lazy(view: PassInput) -> Plan:
        waiting = [job.job_id for line in view.lines.values() for job in line]
        return Plan(placements=(), pending_reasons={}, nodes=(), reservations=dict.fromkeys(waiting, ()))

    done = replay([make_traced(job_id="j")], make_site(1), Planner(decide=lazy))

    assert outcomes(done)["j"].never_started


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_trace_gives_the_same_replay(policy: str) -> None:
    trace = [make_traced(at, 500, gpus=1 + at % 2, is_preemptible=at % 3 == 0, priority=at % 10) for at in range(40)]

    first, second = replayed(trace, make_site(2, 2), policy), replayed(trace, make_site(2, 2), policy)

    assert first == second
