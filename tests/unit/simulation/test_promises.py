"""The promises of docs/explanation/scheduling.md over hours of replayed jobs: limits, fair shares, no starvation."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.domain.scheduling.queue_order import AGEING_SECONDS
from app.domain.units import WHOLE
from simulation.fairness import shares
from simulation.generating import Workload, make_cluster, make_trace
from simulation.jobs import Behaviour, JobResult
from simulation.planners import POLICIES
from simulation.replay import Replay
from simulation.trace import TraceJob
from tests.builders.simulated import IDEAL, RESERVE_AFTER, make_site, make_traced, outcomes, replayed

BUSY = Workload(jobs=150, nodes=3, gpu_types=("h100", "a100"), load=1.4, parts=0.2)
FORGETFUL = Behaviour(saves_when_asked=False)


def in_use(done: Replay, at: float) -> dict[str, float]:
    """Node → devices that were held there at this time."""
    found: dict[str, float] = {}
    for outcome in done.outcomes:
        for stay in outcome.stays:
            if stay.started_at <= at < stay.ended_at:
                for node in stay.nodes:
                    found[node] = found.get(node, 0) + stay.amount / len(stay.nodes)
    return found


def time_held(outcome: JobResult) -> float:
    return sum(stay.ended_at - stay.started_at for stay in outcome.stays)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_is_served_and_no_device_is_allocated_twice(policy: str, seed: int) -> None:
    workload = replace(BUSY, seed=seed, wide=0.5 if seed == 2 else 0.0)
    behaviour = FORGETFUL if seed == 1 else Behaviour()

    done = replayed(make_trace(workload), make_cluster(workload), policy, behaviour)

    assert all(outcome.refused or outcome.ended_at is not None for outcome in done.outcomes)
    starts = [stay.started_at for outcome in done.outcomes for stay in outcome.stays]
    assert max(amount for at in starts for amount in in_use(done, at).values()) <= workload.gpus
    for outcome in (each for each in done.outcomes if not each.refused):
        attempts, saved = len(outcome.stays), outcome.preemptions * behaviour.save_seconds
        assert all(len(stay.nodes) == outcome.job.request.node_count for stay in outcome.stays)
        work = outcome.job.seconds + outcome.lost_seconds + attempts * behaviour.start_seconds + saved
        # A job that is preempted while it starts has not begun to work.
        assert work - attempts * behaviour.start_seconds - 1e-3 <= time_held(outcome) <= work + 1e-3


def test_a_project_never_holds_more_than_its_limit() -> None:
    trace = [make_traced(at * 30.0, 900, gpus=1 + at % 4, project="ab"[at % 2], share=WHOLE) for at in range(120)]

    done = replayed(trace, make_site(8, 8, quotas={"a": {"limit": 5}}))

    mine = [outcome for outcome in done.outcomes if outcome.job.project == "a"]
    alone = Replay(cluster=done.cluster, outcomes=mine, passes=0, ended_at=0.0)
    held = [sum(in_use(alone, outcome.stays[0].started_at).values()) for outcome in mine]
    assert max(held) == 5


def demanding(project: str, count: int, sizes: Sequence[int], seconds: float) -> list[TraceJob]:
    """More than the cluster could ever give it, from the first second."""
    return [
        make_traced(
            0, seconds * (0.5 + number % 7 / 6), gpus=sizes[number % len(sizes)], project=project, is_preemptible=True
        )
        for number in range(count)
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({"a": {}, "b": {}, "c": {}}, (1 / 3, 1 / 3, 1 / 3)),
        ({"a": {"deserved": 8}, "b": {"deserved": 4}, "c": {"deserved": 4}}, (1 / 2, 1 / 4, 1 / 4)),
        (
            {"a": {"over_quota_weight": 2.0}, "b": {"over_quota_weight": 1.0}, "c": {"over_quota_weight": 1.0}},
            (1 / 2, 1 / 4, 1 / 4),
        ),
        ({"a": {"deserved": 4}, "b": {"over_quota_weight": 2.0, "deserved": 4}, "c": {}}, (3 / 8, 1 / 2, 1 / 8)),
    ],
)
def test_shares_are_within_ten_percent_over_a_window(quotas: dict[str, object], expected: Sequence[float]) -> None:
    trace = [*demanding("a", 80, (1, 2), 1800), *demanding("b", 80, (1, 1, 2), 2400), *demanding("c", 80, (1,), 1800)]
    site = make_site(8, 8, quotas=quotas)
    window = 2 * 3600.0, 6 * 3600.0

    done = replayed(trace, site, behaviour=Behaviour())

    got = shares(site, done.outcomes, since=window[0], until=window[1])
    assert all(abs(share.ratio - 1) < 0.1 for share in got.values()), got
    whole = 16 * (window[1] - window[0])
    assert [share.got / whole for share in got.values()] == pytest.approx(expected, rel=0.1)


def test_naive_policies_do_not_keep_to_the_shares() -> None:
    trace = [*demanding("a", 400, (1, 2), 1800), *demanding("b", 40, (1,), 1800)]
    site = make_site(8, 8)

    got = shares(site, replayed(trace, site, "first-fit").outcomes, since=0, until=4 * 3600)

    assert got["b"].ratio < 0.5


@pytest.mark.parametrize("seed", range(2))
def test_a_large_job_is_held_back_no_longer_than_was_promised(seed: int) -> None:
    longest = 5400.0
    small = [
        make_traced(at * 290.0, 600 + (at * 1117 + seed * 331) % (longest - 600), gpus=1 + at % 2) for at in range(200)
    ]
    large = make_traced(14_400 + seed, 600, gpus=8, job_id="large")

    waits = {
        policy: outcomes(replayed([*small, large], make_site(8, 8), policy))["large"].wait_seconds
        for policy in ("default", "no-reserve")
    }

    # Half an hour, the longest job on the node, and the next planner pass.
    assert (waits["default"] or 0) <= RESERVE_AFTER + longest + 2
    assert (waits["no-reserve"] or 0) > 2 * (RESERVE_AFTER + longest)


def test_the_bound_holds_for_a_project_that_is_seldom_served() -> None:
    longest = 4200.0
    small = [make_traced(at * 210.0, 3000 + (997 * at) % 1200, project="ab"[at % 2]) for at in range(12 * 3600 // 210)]
    large = make_traced(14_400, 600, gpus=8, project="a", job_id="large")

    found = outcomes(replayed([*small, large], make_site(8, 8)))

    # The small jobs ask for more than there is. Once its project is served, a node is reserved for the large job.
    assert (found["large"].wait_seconds or 0) <= 2 * RESERVE_AFTER + longest
    assert small[-1].arrives_at > 11 * 3600


def test_no_job_is_overtaken_by_much_later_ones_however_urgent() -> None:
    patient = make_traced(0.5, 3600, priority=0, job_id="patient")
    urgent = [make_traced(at * 2400.0, 3600, priority=10) for at in range(100)]

    found = outcomes(replayed([patient, *urgent], make_site(1)))

    started = found["patient"].stays[0].started_at
    before = [each for each in found.values() if each.stays[0].started_at < started]
    assert max(each.job.arrives_at for each in before) <= 10 * AGEING_SECONDS + 0.5
    # It waits for the jobs that arrived early enough to pass it, and for the one that was running.
    assert started <= (len(before) + 1) * 3600
    assert len(before) > 50


def test_preemption_comes_to_an_end() -> None:
    trace = [
        make_traced(at * 100.0, 5000, gpus=1 + at % 3, project="ab"[at % 2], priority=at % 10, is_preemptible=True)
        for at in range(200)
    ]

    done = replayed(trace, make_site(8, quotas={"a": {"deserved": 4}, "b": {"deserved": 4}}), behaviour=IDEAL)

    assert all(outcome.ended_at is not None for outcome in done.outcomes)
    assert max(outcome.preemptions for outcome in done.outcomes) <= 10
