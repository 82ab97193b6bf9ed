"""The report of why jobs of a replay never started."""

from app.domain.scheduling.planner import SchedulingPolicy
from simulation.comparing import compare
from simulation.jobs import Behaviour
from simulation.planners import POLICIES
from simulation.unstarted import Unstarted, unstarted
from tests.builders.simulated import make_site, make_traced, replayed


def test_jobs_with_the_same_reason_stand_together_under_the_policies_that_share_it() -> None:
    trace = [make_traced(number, gpus=3, job_id=f"large-{number}") for number in range(2)]
    trace += [make_traced(5, job_id="small"), make_traced(6, gpus=2, project="red", job_id="beyond")]
    site = make_site(2, quotas={"red": {"limit": 1}})

    results = compare(trace, site, POLICIES, SchedulingPolicy(reserve_after_seconds=1800), Behaviour())
    found = unstarted({name: done for name, (done, _) in results.items()})

    assert [(each.first, each.jobs, each.policies) for each in found] == [
        ("large-0", 2, tuple(POLICIES)),
        ("beyond", 1, tuple(POLICIES)),
    ]
    assert found[0].why == "needs 3 GPUs on one node; no ready node has that: n0 has 2 of 3 such devices"


def test_reasons_that_differ_by_policy_are_reported_for_each() -> None:
    one, two = make_site(1), make_site(2)
    trace = [make_traced(gpus=2, job_id="j")]

    found = unstarted(
        {"small": replayed(trace, one), "large": replayed(trace, two), "none": replayed(trace, make_site())}
    )

    assert found == [
        Unstarted(
            why="needs 2 GPUs on one node; no ready node has that: n0 has 1 of 2 such devices",
            first="j",
            jobs=1,
            policies=("small",),
        ),
        Unstarted(why="needs 2 GPUs; no node is ready", first="j", jobs=1, policies=("none",)),
    ]


def test_of_many_reasons_those_of_the_first_jobs_are_reported() -> None:
    trace = [make_traced(number, gpus=2 + number, job_id=f"j{number}") for number in range(9)]

    found = unstarted({"default": replayed(trace, make_site(1))})

    assert [each.first for each in found] == ["j0", "j1", "j2", "j3", "j4"]
