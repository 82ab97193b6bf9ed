"""An internal error while an attempt's end is written: the job is retried or fails, frees all it holds, blames no node.

The failures are real: what a row of the database says can't be read, or the database refuses the row of the outcome.
"""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import select, text

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, Lease, NodeFault, Reservation
from app.services.attempts import leases
from app.services.attempts.leases import LiveLease
from app.services.operations import unrecorded_outcomes
from tests.builders.walks import NO_WAIT, job_of, make_gang, make_job, make_node, start_attempt, start_gang
from tests.systems.supervising import SLEEPS, World, environment, rows

pytestmark = pytest.mark.both_databases

UNREADABLE: dict[str, Any] = {"training_config": {"framework": []}}  # what came of an error of ours


def change(db: Database, job_id: str, **columns: Any) -> None:
    with db.write() as session:
        for name, value in columns.items():
            setattr(session.get_one(Job, job_id), name, value)


def revoke(db: Database, node: str = "n1") -> bool:
    seen: Sequence[LiveLease] = leases.live(db)
    lease = next(each for each in seen if each.node == node)
    return leases.revoke(db, lease, cause="SUPERVISOR_LOST", message="it died", actor="reaper", backoff=NO_WAIT)


def held(db: Database) -> list[str]:
    """The nodes of which anything is held."""
    with db.read() as session:
        leased = session.scalars(select(Lease.node).where(Lease.released_at.is_(None)))
        return sorted([*leased, *session.scalars(select(Reservation.node))])


def faults(db: Database) -> int:
    with db.read() as session:
        return session.query(NodeFault).count()


@pytest.mark.parametrize(
    ("columns", "state", "retries"),
    [
        ({"max_retries": 1}, JobState.QUEUED, 1),
        ({"max_retries": 0}, JobState.FAILED, 0),
        ({"max_retries": 1, "requested": "pause"}, JobState.QUEUED, 1),
    ],
)
def test_a_job_that_cannot_be_ended_as_it_should_is_let_go_all_the_same(
    database: Database, columns: dict[str, Any], state: JobState, retries: int
) -> None:
    make_node(database)
    job_id = make_job(database, JobState.QUEUED)
    start_attempt(database, job_id)
    change(database, job_id, spec=UNREADABLE, **columns)

    assert revoke(database)

    job = job_of(database, job_id)
    assert (job.state, job.error_type, job.retries_used) == (state, "OUTCOME_ERROR", retries)
    assert "the outcome SUPERVISOR_LOST could not be written: TypeError" in str(job.error_message)
    with database.read() as session:
        attempt = session.get_one(Attempt, (job_id, 1))
        assert unrecorded_outcomes.count(session) == 1
        assert unrecorded_outcomes.newest(session, 3) == [job_id]
    assert (attempt.cause, attempt.ended_at is not None) == ("OUTCOME_ERROR", True)
    assert (held(database), faults(database)) == ([], 0)


def test_each_gang_part_is_released_and_the_others_are_notified(database: Database) -> None:
    job_id = make_gang(database)
    first, _ = start_gang(database, job_id, "n1", "n2")
    change(database, job_id, max_retries=1, spec=UNREADABLE)
    with database.write() as session:
        session.get_one(Attempt, (job_id, 1)).ending = {"node": "n2"}  # without what it should say besides

    assert revoke(database, "n2")

    assert set(held(database)) == {"n1"}
    assert leases.renew(database, lease_id=first.lease_id, fence=first.fence, ran_seconds=1.0).part_ended == "n2"
    assert revoke(database, "n1")
    assert (job_of(database, job_id).state, held(database), faults(database)) == (JobState.QUEUED, [], 0)


def break_row(world: World, job_id: str) -> str:
    """Returns what writing any outcome fails with then."""
    change(world.db, job_id, spec=UNREADABLE)
    return "TypeError"


def refuse_row(world: World, job_id: str) -> str:
    """The same of the one outcome that this job would have."""
    del job_id
    refusal = "BEFORE UPDATE ON attempt WHEN NEW.cause = 'RANK_KILLED' BEGIN SELECT RAISE(ABORT, 'refused'); END"
    with world.db.write() as session:
        session.execute(text(f"CREATE TRIGGER refused {refusal}"))
    return "IntegrityError"


@pytest.mark.usefixtures("no_memory_kills")
@pytest.mark.parametrize("break_it", [refuse_row, break_row])
def test_a_supervisor_writes_another_outcome_than_the_one_that_fails(
    world: World, break_it: Callable[[World, str], str]
) -> None:
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    error = break_it(world, job_id)
    (rank,) = [pid for pid in world.processes(job_id) if b"RANK=0" in environment(pid)]

    os.kill(rank, signal.SIGKILL)
    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type, job.retries_used) == (JobState.QUEUED, "OUTCOME_ERROR", 1), world.describe(
        job_id
    )
    assert world.attempt(job_id).end_reason == f"the outcome failed could not be written: {error}"
    assert (rows(world, NodeFault), rows(world, Reservation)) == ([], [])
    assert world.lease(job_id).released_at is not None
