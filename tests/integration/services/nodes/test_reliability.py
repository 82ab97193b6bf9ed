"""How far a node can be relied on, from how real attempts ended there."""

import threading

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.nodes.quarantine import QuarantineRule
from app.models import Node, NodeRecord
from app.services.attempts import leases
from app.services.attempts.leases import NO_RETRY
from app.services.nodes import quarantine, registry, reliability
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.recovering import tried_on

pytestmark = pytest.mark.both_databases

NEVER = QuarantineRule(faults=0, window_seconds=3600)


def end(db: Database, node: str, outcome: Outcome) -> str:
    """One attempt on the node, from its claim to its end; returns its job."""
    with db.write() as session:
        job_id = make_job(session).id
    tried_on(db, job_id, node, outcome)
    return job_id


def end_and_get_through(db: Database, node: str, outcome: Outcome) -> None:
    """The same, and then the job trains to its end on `c`, which shows whose doing it was."""
    tried_on(db, end(db, node, outcome), "c")
    quarantine.evaluate(db, NEVER, actor="test")


def record(db: Database, node: str) -> tuple[float, int, int, int]:
    with db.read() as session:
        row = session.get_one(NodeRecord, node)
        return round(row.reputation, 6), row.completions, row.disconnects, row.faults


LOST = Outcome(kind="failed", cause="NODE_LOST")


@pytest.fixture
def known(db: Database) -> Database:
    with db.write() as session:
        for name in ("a", "b", "c"):
            make_node(session, name, state="ready" if name < "c" else "drained")
            reliability.begin(session, name)
    return db


def test_each_ended_attempt_moves_reliability_a_tenth_of_the_way(known: Database) -> None:
    assert record(known, "a") == (1.0, 0, 0, 0)

    end_and_get_through(known, "a", LOST)
    end_and_get_through(known, "a", LOST)

    assert record(known, "a") == (0.81, 0, 2, 0)
    end(known, "a", Outcome(kind="failed", cause="SCRIPT_ERROR"))
    assert record(known, "a") == (0.81, 0, 2, 0), "the job's own doing"
    end(known, "a", LOST)
    assert record(known, "a") == (0.81, 0, 2, 0), "perhaps the job's own doing"
    end_and_get_through(known, "a", Outcome(kind="failed", cause="INTERNAL"))
    assert record(known, "a") == (0.729, 0, 2, 1)
    assert record(known, "b") == (1.0, 0, 0, 0)


def test_a_completed_training_raises_reliability(known: Database) -> None:
    end_and_get_through(known, "a", LOST)
    end(known, "a", Outcome(kind="completed"))

    assert record(known, "a") == (0.91, 1, 1, 0)


def test_the_planner_prefers_the_more_reliable_node(known: Database) -> None:
    end_and_get_through(known, "a", LOST)
    with known.write() as session:
        seen = {each.name: (each.active_jobs, round(each.reputation, 6)) for each in registry.capacities(session)}
        make_job(session)
    assert seen == {"a": (0, 0.9), "b": (0, 1.0)}

    placed = planner.plan_once(known)

    assert [each.node for each in placed] == ["b"]


def test_attempts_that_end_at_once_are_all_counted(known: Database) -> None:
    with known.write() as session:
        node = session.get_one(Node, "a")
        for _ in range(8):
            make_attempt(session, make_job(session, state=JobState.TRAINING), node, device_indices=())
    live = leases.live(known)

    def take(lease: leases.LiveLease) -> None:
        leases.revoke(known, lease, cause="DEVICE_FAULT", message="", actor="x", backoff=NO_RETRY)

    threads = [threading.Thread(target=take, args=(lease,)) for lease in live]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert record(known, "a") == (round(0.9**8, 6), 0, 0, 8)


def test_coordinators_that_look_at_once_count_each_fault_once(known: Database) -> None:
    for _ in range(4):
        tried_on(known, end(known, "a", LOST), "c")

    def look() -> None:
        quarantine.evaluate(known, NEVER, actor="test")

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert record(known, "a") == (round(0.9**4, 6), 0, 4, 0)


def test_a_node_that_comes_back_has_its_history(known: Database) -> None:
    end_and_get_through(known, "a", LOST)
    with known.write() as session:
        reliability.begin(session, "a")

    assert record(known, "a") == (0.9, 0, 1, 0)
