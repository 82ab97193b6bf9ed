"""Which faults of a node count, and how many are too many."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.nodes.quarantine import Fault, QuarantineRule, Reached, counted, did_better, reason_for

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
RULE = QuarantineRule(faults=3, window_seconds=3600)


def fault(job_id: str, cause: str = "INTERNAL", *, seconds: float = 0) -> Fault:
    return Fault(job_id=job_id, cause=cause, at=BEGAN + timedelta(seconds=seconds))


def test_faults_of_different_jobs_are_too_many_at_last() -> None:
    faults = [fault("a"), fault("b", "PROCESS_STUCK", seconds=1), fault("c", seconds=2)]

    assert reason_for(faults[:2], RULE) == ""
    said = "attempts of 3 jobs were ended by the node within 3600 s: INTERNAL (2), PROCESS_STUCK (1)"
    assert reason_for(faults, RULE) == said


def test_one_job_that_fails_again_and_again_counts_once() -> None:
    faults = [fault("a", seconds=at) for at in (0, 500, 1000, 1500)]

    assert counted(faults) == [faults[0]]


def test_an_outage_that_takes_several_jobs_counts_once() -> None:
    first = [fault(job, "NODE_LOST", seconds=at) for job, at in (("a", 0), ("b", 0), ("c", 50), ("d", 100))]
    second = fault("e", "SUPERVISOR_LOST", seconds=200)

    assert counted([second, *first]) == [first[0], second]


def test_faults_within_an_outage_count_by_themselves() -> None:
    faults = [fault("a", "NODE_LOST"), fault("b", seconds=1), fault("c", seconds=2)]

    assert counted(faults) == faults


@pytest.mark.parametrize("number", [0, 4])
def test_fewer_than_too_many_or_none_at_all_is_no_reason(number: int) -> None:
    rule = QuarantineRule(faults=number, window_seconds=3600)

    assert reason_for([fault("a"), fault("b"), fault("c")], rule) == ""


@pytest.mark.parametrize(
    ("later", "failed", "is_better"),
    [
        (Reached(trained=True, step=0), Reached(trained=False, step=0), True),  # it could not even begin before
        (Reached(trained=False, step=0), Reached(trained=False, step=0), False),
        (Reached(trained=True, step=5), Reached(trained=True, step=5), False),
        (Reached(trained=True, step=6), Reached(trained=True, step=5), True),
        (Reached(trained=True, step=0, completed=True), Reached(trained=True, step=0), True),  # a script without steps
        (Reached(trained=False, step=9), Reached(trained=True, step=5), False),
    ],
)
def test_another_node_did_better_where_the_job_got_further(later: Reached, failed: Reached, *, is_better: bool) -> None:
    assert did_better(later, failed) == is_better
