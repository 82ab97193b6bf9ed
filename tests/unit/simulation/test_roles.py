"""Replays of jobs with roles: where their instances are, and what the failure of one costs."""

from dataclasses import replace

import pytest

from simulation.comparing import ROLE_HEADS, documents, role_rows
from simulation.csv_rows import BadTrace
from simulation.measuring import measure
from simulation.planners import POLICIES
from simulation.reading import read_trace, trace_lines
from simulation.trace import TraceJob
from tests.builders.simulated import IDEAL, make_site, make_traced, outcomes, replayed, spans

HEAD = "job_id,submitted_at,run_seconds,roles,role_failures"
ROLES = "trainer=1x4 rollout=3x1:task"
SAVES_EVERY_30 = replace(IDEAL, start_seconds=10, checkpoint_seconds=30)


def a_job(failures: str = "", *, seconds: float = 100) -> TraceJob:
    (found,) = read_trace("a.csv", [HEAD, f"rl,0,{seconds:g},{ROLES},{failures}"])
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_all_instances_start_together_where_the_planner_packs_them(policy: str) -> None:
    trace = [make_traced(0, 50, gpus=2, job_id="first"), replace(a_job(), arrives_at=1.0)]

    found = outcomes(replayed(trace, make_site(4, 2, 2), policy))["rl"]

    assert spans(found) in ([(1, 101)], [(50, 150)]), "beside the first job, or after it"
    (stay,) = found.stays
    assert stay.instances["trainer"] == ("n0",)
    assert len(stay.instances["rollout"]) == 3
    assert stay.amount == 7


def test_roles_that_no_nodes_could_hold_are_refused_with_the_reason() -> None:
    found = outcomes(replayed([a_job()], make_site(4, 2)))["rl"]

    assert found.refused.startswith("needs trainer 1 × 4 GPUs and rollout 3 × 1 GPU, all at once; the ready nodes")


def test_an_instance_that_restarts_alone_lets_the_others_wait_and_no_work_is_lost() -> None:
    found = outcomes(replayed([a_job("rollout@50 rollout@70")], make_site(8), behaviour=SAVES_EVERY_30))["rl"]

    assert spans(found) == [(0, 10 + 100 + 2 * 10)]
    assert (found.restarts, found.failures, found.lost_seconds) == ({"rollout": 2}, {}, 0)


def test_an_instance_that_ends_the_attempt_sends_the_job_back_to_its_checkpoint() -> None:
    job = a_job("rollout@20 trainer@50")

    done = replayed([job], make_site(8), behaviour=SAVES_EVERY_30)

    found = outcomes(done)["rl"]
    assert spans(found) == [(0, 10 + 50 + 10), (70, 70 + 10 + 70)]
    assert (found.restarts, found.failures, found.lost_seconds) == ({"rollout": 1}, {"trainer": 1}, 20)
    report = {"default": measure(done)}
    (trainer, rollout) = documents(report)["default"]["roles"].values()
    assert (trainer["failures"], rollout["restarts"], trainer["progress"]) == (1, 1, 1.0)
    assert trainer["goodput"] == round(100 / 150, 6)
    assert [row[:5] for row in role_rows(report)] == [
        ("default", "trainer", 1, 1, "1.00"),
        ("default", "rollout", 1, 3, "1.00"),
    ]
    assert {len(row) for row in role_rows(report)} == {len(ROLE_HEADS)}


def test_a_job_that_is_preempted_while_an_instance_restarts_keeps_its_work() -> None:
    low = replace(a_job("rollout@50", seconds=100), is_preemptible=True, priority=1)
    high = make_traced(65, 10, gpus=8, job_id="high", priority=9)

    found = outcomes(replayed([low, high], make_site(8), behaviour=replace(SAVES_EVERY_30, save_seconds=5)))

    # At 60 s, after 50 s of work, the rollout fails; it would be back at 70 s.
    assert spans(found["rl"]) == [(0, 70), (90, 90 + 10 + 50)]
    assert found["rl"].preemptions == 1


def test_roles_are_written_as_they_are_read() -> None:
    job = a_job("rollout@20 trainer@50 rollout@1234567.125 trainer@3000000", seconds=9e6)

    assert read_trace("a.csv", list(trace_lines([job]))) == [job]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rl,0,100,trainer=1,", "column roles: is 'trainer=1' and has to be words NAME=COUNTxGPUS"),
        ("rl,0,100,a=1x1 a=2x1,", "each name once"),
        ("rl,0,100,a=65x1,", "at most 64 instances"),
        ("rl,0,100,a=1x1,b@5", "column role_failures: is 'b@5' and has to be words NAME@SECONDS"),
        ("rl,0,100,a=1x1,a@100", "before the end of the work, 100 seconds"),
        ("rl,0,100,,a@5", "empty without roles"),
    ],
)
def test_a_bad_role_is_reported_with_its_column_and_the_rule(line: str, said: str) -> None:
    with pytest.raises(BadTrace) as raised:
        read_trace("a.csv", [HEAD, line])
    assert said in str(raised.value)


def test_devices_of_the_job_are_refused_beside_roles() -> None:
    with pytest.raises(BadTrace, match="column gpus: is '4' and has to be empty with roles"):
        read_trace("a.csv", [f"{HEAD},gpus", f"rl,0,100,{ROLES},,4"])
