"""Which node of a gang is at fault, and which of its errors is reported; on both databases."""

import threading
import time
from dataclasses import replace

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job, Node
from app.services.attempts import gang_parts, leases, work_orders
from app.services.lifecycle import transitions
from app.services.scheduling import planner
from tests.builders.walks import BROKEN, NO_WAIT, attempt_of, job_of, live_nodes, make_gang, make_node, start_gang

pytestmark = pytest.mark.both_databases


@pytest.fixture
def gang(database: Database) -> str:
    return make_gang(database)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_the_earlier_of_two_errors_is_reported_whichever_node_ends_later(
    database: Database, gang: str, node: str
) -> None:
    works = start_gang(database, gang, "n1", "n2")
    now = time.monotonic()
    # The node that failed first has a rank that did not exit by itself, so the other node noticed and ended earlier.
    cause = _failed("rank 1: KeyError", ends_since=now - 3)
    follows = _failed("connection reset", ends_since=now - 0.1)
    said = {work.node: cause if work.node == node else follows for work in works}

    for each in [*sorted(works, key=lambda work: work.node == node), *works[: node == "n2"]]:
        gang_parts.finish(database, each, said[each.node], NO_WAIT)

    job = job_of(database, gang)
    assert (job.state, job.error_type, job.error_message) == (JobState.FAILED, "SCRIPT_ERROR", "rank 1: KeyError")


def test_waiting_for_a_lock_makes_a_failure_no_later(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    now = time.monotonic()
    gang_parts.finish(database, second, _failed("connection reset", ends_since=now - 0.1), NO_WAIT)
    is_held = threading.Event()

    def hold() -> None:
        with database.write() as session:
            transitions.load_for_change(session, gang)
            is_held.set()
            time.sleep(1)  # longer than lies between the two failures

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    gang_parts.finish(database, first, _failed("rank 1: KeyError", ends_since=now - 0.6), NO_WAIT)
    holder.join()

    assert job_of(database, gang).error_message == "rank 1: KeyError"


@pytest.mark.parametrize("seconds", [0.1, 0.9])  # too close together to say which came first
def test_a_rank_that_was_killed_from_outside_is_the_cause_of_what_scripts_elsewhere_say(
    database: Database, gang: str, seconds: float
) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    now = time.monotonic()
    killed = replace(_failed("rank 2 was killed", ends_since=now - 0.5), cause="RANK_KILLED", exit_code=137)
    script = _failed("connection reset", ends_since=now - seconds)

    gang_parts.finish(database, second, killed, NO_WAIT)
    ending = gang_parts.finish(database, first, script, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.QUEUED
    assert attempt_of(database, gang).cause == "RANK_KILLED"


def test_a_consequence_is_not_the_cause_however_early_it_was_seen(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    script = Outcome(kind="failed", cause="SCRIPT_ERROR", message="rank 0: KeyError", exit_code=1)

    gang_parts.finish(database, second, replace(BROKEN, ends_since=time.monotonic() - 9), NO_WAIT)
    ending = gang_parts.finish(database, first, script, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.FAILED
    assert attempt_of(database, gang).cause == "SCRIPT_ERROR"


def _failed(message: str, *, ends_since: float) -> Outcome:
    return Outcome(kind="failed", cause="SCRIPT_ERROR", message=message, exit_code=1, ends_since=ends_since)


def fail_on(db: Database, gang: str, node: str, cause: str = "INTERNAL") -> None:
    """Start it on the first two nodes that it is given, and let one of them fail."""
    placed = planner.plan_once(db)
    assert {each.job_id for each in placed} == {gang}
    for each in placed:
        assert leases.claim(db, job_id=gang, attempt=each.attempt, node=each.node, boot_id="boot")
    works = [work_orders.load_work(db, gang, placed[0].attempt, node=each.node) for each in placed]
    fault = Outcome(kind="failed", cause=cause, message=f"{node} is at fault", exit_code=1)
    for work in [*sorted(works, key=lambda work: work.node != node), works[0]]:
        if work.node in live_nodes(db):
            gang_parts.finish(db, work, fault if work.node == node else BROKEN, NO_WAIT)
    assert live_nodes(db) == []


@pytest.mark.parametrize("cause", ["INTERNAL", "DISK_FULL"])
def test_a_node_that_failed_in_another_set_of_nodes_before_is_the_one_that_is_avoided(
    database: Database, gang: str, cause: str
) -> None:
    fail_on(database, gang, "n2", cause)
    with database.write() as session:
        session.get_one(Node, "n1").state = "draining"
        session.get_one(Job, gang).not_before_at = None
    make_node(database, "n3")

    fail_on(database, gang, "n2", cause)

    job = job_of(database, gang)
    assert (job.no_room_on if cause == "DISK_FULL" else job.excluded_nodes) == ["n2"]
