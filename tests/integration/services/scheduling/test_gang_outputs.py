"""Outputs of the parts of an attempt on several nodes: seen together, or the attempt is repeated; on both databases."""

from dataclasses import replace

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import NewArtifact, Outcome
from app.domain.lifecycle.states import JobState
from app.models import JobEvent
from app.services.attempts import artifact_rows, artifacts, gang_parts, leases, node_outputs, work_orders
from app.services.attempts.node_outputs import OutputSize
from tests.builders.walks import NO_WAIT, make_gang, start_gang

pytestmark = pytest.mark.both_databases

HELD_APART = "node-outputs/attempt-1-node-1/file"


@pytest.fixture
def gang(database: Database) -> str:
    return make_gang(database)


def revoke(db: Database, node: str, cause: str) -> bool:
    (seen,) = leases.live(db, node=node)
    return leases.revoke(db, seen, cause=cause, message=f"{node} is gone", actor="reaper", backoff=NO_WAIT)


def warned(db: Database, job_id: str) -> list[str]:
    with db.read() as session:
        events = session.scalars(select(JobEvent).where(JobEvent.job_id == job_id))
        return [each.message for each in events if each.reason == "OUTPUT_NOT_KEPT"]


def artifacts_of(db: Database, job_id: str) -> list[str]:
    with db.read() as session:
        return [each.path for each in artifacts.listed(session, job_id, artifacts.ALL)]


def test_outputs_of_all_parts_are_seen_when_the_job_has_completed(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    model, other = (NewArtifact(path=path, size_bytes=3, sha256="0" * 64) for path in ("model", HELD_APART))
    many = [replace(other, path=f"{HELD_APART}-{number}") for number in range(artifact_rows.CHUNK + 1)]
    done = Outcome(kind="completed", exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)
    assert node_outputs.announce(database, second, OutputSize(files=1, size_bytes=3)) == OutputSize(
        files=1, size_bytes=3
    )
    assert node_outputs.announce(database, first, OutputSize(files=2, size_bytes=4)) == OutputSize(
        files=3, size_bytes=7
    )

    assert gang_parts.finish(database, second, replace(done, artifacts=[other, *many]), NO_WAIT) is None
    assert artifacts_of(database, gang) == []
    ending = gang_parts.finish(database, first, replace(done, artifacts=[model]), NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.COMPLETED
    assert set(artifacts_of(database, gang)) == {model.path, other.path, *(each.path for each in many)}
    with database.read() as session:
        assert [each.path for each in artifacts.listed(session, gang)] == ["model"]
    assert warned(database, gang) == []


@pytest.mark.parametrize("cause", ["NODE_LOST", "SUPERVISOR_LOST"])
def test_a_part_that_is_lost_while_it_stores_its_output_makes_the_job_repeat(
    database: Database, gang: str, cause: str
) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    model = NewArtifact(path="model", size_bytes=3, sha256="0" * 64)
    done = Outcome(kind="completed", exit_code=0, artifacts=[model])
    work_orders.enter_phase(database, first, JobState.TRAINING)
    node_outputs.announce(database, second, OutputSize(files=1, size_bytes=3))
    artifact_rows.prepare(
        database,
        job_id=gang,
        fence=second.fence,
        artifacts=[replace(model, path=f"{HELD_APART}-{n}") for n in range(artifact_rows.CHUNK + 1)],
    )
    assert gang_parts.finish(database, first, done, NO_WAIT) is None

    assert revoke(database, "n2", cause)
    ending = gang_parts.finish(database, first, done, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.QUEUED
    assert artifacts_of(database, gang) == []


def test_a_node_that_is_lost_before_its_output_was_looked_at_is_named(database: Database, gang: str) -> None:
    first, _ = start_gang(database, gang, "n1", "n2")
    done = Outcome(kind="completed", exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)
    assert gang_parts.finish(database, first, done, NO_WAIT) is None

    assert revoke(database, "n2", "NODE_LOST")
    ending = gang_parts.finish(database, first, done, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.COMPLETED
    (message,) = warned(database, gang)
    assert message.startswith("what the ranks on n2 wrote to TRAINYARD_OUTPUT_DIR was not kept")


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "not announced"])
@pytest.mark.parametrize("cause", ["EXPORT_FAILED", "DISK_FULL", "STORAGE_ERROR", "INTERNAL"])
def test_an_output_that_is_not_stored_after_all_were_asked_to_end_undoes_the_job(
    database: Database, gang: str, cause: str, *, announced: bool
) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    done = Outcome(kind="completed", exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)
    assert gang_parts.finish(database, first, done, NO_WAIT) is None
    if announced:
        node_outputs.announce(database, second, OutputSize(files=1, size_bytes=3))

    gang_parts.end_others(database, first, done)
    assert gang_parts.finish(database, second, Outcome(kind="failed", cause=cause), NO_WAIT) is None
    ending = gang_parts.finish(database, first, done, NO_WAIT)

    assert ending is not None
    assert ending.state in (JobState.FAILED, JobState.QUEUED)
    assert warned(database, gang) == []


def test_a_part_whose_lease_was_taken_announces_nothing(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    done = Outcome(kind="completed", exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)
    assert gang_parts.finish(database, first, done, NO_WAIT) is None
    assert revoke(database, "n2", "NODE_LOST")

    with pytest.raises(LeaseLost):
        node_outputs.announce(database, second, OutputSize(files=1, size_bytes=3))
