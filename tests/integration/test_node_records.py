"""How far a node can be relied on, from how real attempts ended there."""

import threading

import pytest

from app.domain.job_state import JobState
from app.extensions import Database
from app.models import Attempt, Node, NodeRecord
from app.models.base import utc_now
from app.services import leases, node_records, nodes, scheduling
from app.services.endings import Outcome, end_attempt
from app.services.leases import NO_RETRY
from tests.factories import make_attempt, make_job, make_node


def end(db: Database, node: str, outcome: Outcome) -> None:
    """One attempt on the node, from its claim to its end."""
    with db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, session.get_one(Node, node), device_indices=())
        end_attempt(session, job, job.attempt, outcome, NO_RETRY, actor="test")


def record(db: Database, node: str) -> tuple[float, int, int, int]:
    with db.read() as session:
        row = session.get_one(NodeRecord, node)
        return round(row.reputation, 6), row.completions, row.disconnects, row.faults


LOST = Outcome(kind="failed", cause="NODE_LOST")


@pytest.fixture
def known(db: Database) -> Database:
    with db.write() as session:
        for name in ("a", "b"):
            make_node(session, name)
            node_records.begin(session, name)
    return db


def test_each_end_moves_it_a_tenth_of_the_way(known: Database) -> None:
    assert record(known, "a") == (1.0, 0, 0, 0)

    end(known, "a", LOST)
    end(known, "a", LOST)

    assert record(known, "a") == (0.81, 0, 2, 0)
    end(known, "a", Outcome(kind="failed", cause="SCRIPT_ERROR"))
    assert record(known, "a") == (0.81, 0, 2, 0), "the job's own doing"
    end(known, "a", Outcome(kind="failed", cause="INTERNAL"))
    assert record(known, "a") == (0.729, 0, 2, 1)
    assert record(known, "b") == (1.0, 0, 0, 0)


def test_a_completed_training_mends_it(known: Database) -> None:
    end(known, "a", LOST)
    with known.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, session.get_one(Node, "a"), device_indices=())
        session.get_one(Attempt, (job.id, job.attempt)).trained_at = utc_now()
        end_attempt(session, job, job.attempt, Outcome(kind="completed"), NO_RETRY, actor="test")

    assert record(known, "a") == (0.91, 1, 1, 0)


def test_the_planner_gives_jobs_to_the_one_that_can_be_relied_on(known: Database) -> None:
    end(known, "a", LOST)
    with known.read() as session:
        seen = {each.name: (each.active_jobs, round(each.reputation, 6)) for each in nodes.capacities(session)}
    assert seen == {"a": (0, 0.9), "b": (0, 1.0)}

    placed = scheduling.plan_once(known)

    assert [each.node for each in placed] == ["b"], "the one that was lost is queued again"


def test_attempts_that_end_at_once_are_all_counted(known: Database) -> None:
    with known.write() as session:
        node = session.get_one(Node, "a")
        for _ in range(8):
            make_attempt(session, make_job(session, state=JobState.TRAINING), node, device_indices=())
    live = leases.live(known)

    def take(lease: leases.LiveLease) -> None:
        leases.take_away(known, lease, cause="NODE_LOST", message="", actor="x", backoff=NO_RETRY)

    threads = [threading.Thread(target=take, args=(lease,)) for lease in live]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert record(known, "a") == (round(0.9**8, 6), 0, 8, 0)


def test_a_node_that_comes_back_has_its_history(known: Database) -> None:
    end(known, "a", LOST)
    with known.write() as session:
        node_records.begin(session, "a")

    assert record(known, "a") == (0.9, 0, 1, 0)
