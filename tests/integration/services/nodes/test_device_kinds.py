"""`device_type: auto` counts the GPUs of nodes that are not lost, so that a dead node blocks no job."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import delete, select

from app.database.engine import Database
from app.domain.errors import CannotFit
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import JobDocument
from app.models import Attempt, Job, Lease, Node, Reservation
from app.models.base import utc_now
from app.services.nodes import registry
from app.services.nodes.capacity import ClusterInventory
from app.services.nodes.device_kinds import LOST_GRACE, gpus
from app.services.scheduling import planner, start_estimates
from tests.builders import factories
from tests.builders.factories import make_document

pytestmark = pytest.mark.both_databases

AUTO = make_document(resource_config={"device_type": "auto"})
LONG_AGO = utc_now() - LOST_GRACE - timedelta(minutes=1)


@pytest.fixture
def cluster(database: Database) -> Database:
    """A node with GPUs and one with CPU slots."""
    with database.write() as session:
        factories.make_node(session, "h100-1", devices=4, device_type="h100", memory_mb=81920)
        factories.make_node(session, "slots", devices=2)
    return database


def lose(db: Database, name: str, *, lost_at: datetime | None = LONG_AGO) -> None:
    with db.write() as session:
        node = session.get_one(Node, name)
        node.state, node.lost_at = "lost", lost_at


def queue(db: Database, document: dict[str, object]) -> str:
    with db.write() as session:
        return factories.make_job(session, document=document).id


def pending_reason(db: Database, job_id: str) -> str:
    with db.read() as session:
        return session.get_one(Job, job_id).pending_reason


def kind(db: Database, document: dict[str, object] = AUTO) -> str:
    with db.read() as session:
        return ClusterInventory().request(session, JobDocument.from_json(document), "default").device_kind


def test_auto_takes_gpus_while_a_node_that_is_not_lost_has_one(cluster: Database) -> None:
    assert kind(cluster) == "cuda"


@pytest.mark.parametrize("lost_at", [LONG_AGO, None])
def test_auto_takes_cpu_slots_when_all_gpus_are_lost(cluster: Database, lost_at: datetime | None) -> None:
    lose(cluster, "h100-1", lost_at=lost_at)
    job_id = queue(cluster, AUTO)

    (placed,) = planner.plan_once(cluster)

    assert kind(cluster) == "cpu"
    assert (placed.job_id, placed.node) == (job_id, "slots")


def test_a_node_lost_for_a_moment_does_not_send_queued_jobs_to_cpu_slots(cluster: Database) -> None:
    job_id = queue(cluster, AUTO)
    registry.mark_lost(cluster, "h100-1", heartbeat_seen=0)

    assert planner.plan_once(cluster) == []
    assert kind(cluster) == "cuda"
    assert pending_reason(cluster, job_id) == (
        "needs 1 GPU on one node; no ready node has that: slots has no GPU; h100-1 could hold it but is "
        "lost: start its worker, or remove it with `trainyard nodes remove h100-1`"
    )
    registry.heartbeat(cluster, "h100-1")
    (placed,) = planner.plan_once(cluster)
    assert placed.node == "h100-1"


def test_a_job_that_trained_on_gpus_waits_for_gpus(cluster: Database) -> None:
    job_id = queue(cluster, AUTO)
    planner.plan_once(cluster)
    with cluster.write() as session:
        session.get_one(Attempt, (job_id, 1)).started_at = utc_now()
    with cluster.write() as session:
        session.scalars(select(Lease)).one().released_at = utc_now()
        session.execute(delete(Reservation))
        session.get_one(Job, job_id).status = JobState.QUEUED
    lose(cluster, "h100-1")

    assert planner.plan_once(cluster) == []
    assert "h100-1 could hold it but is lost" in pending_reason(cluster, job_id)
    with cluster.read() as session:
        assert start_estimates.of_waiting(session, {job_id: 1}) == {}
    with cluster.write() as session:
        session.delete(session.get_one(Node, "h100-1"))
    (placed,) = planner.plan_once(cluster)
    assert placed.node == "slots"


def test_a_job_that_only_lost_gpus_could_hold_is_accepted(cluster: Database) -> None:
    lose(cluster, "h100-1")

    assert kind(cluster, make_document(resource_config={"device_type": "auto", "gpu_count": 4})) == "cuda"
    with pytest.raises(CannotFit):
        kind(cluster, make_document(resource_config={"device_type": "auto", "gpu_count": 5}))


def test_a_job_that_only_lost_gpus_could_hold_names_their_node(cluster: Database) -> None:
    lose(cluster, "h100-1")
    auto = queue(cluster, make_document(resource_config={"device_type": "auto", "gpu_count": 4}))
    cpu = queue(cluster, make_document(resource_config={"device_type": "cpu", "gpu_count": 4}))

    assert planner.plan_once(cluster) == []

    too_few = "needs 4 CPU slots on one node; no ready node has that: slots has 2 of 4 such devices"
    assert pending_reason(cluster, auto) == (
        f"{too_few}; h100-1 could hold it on GPUs but is lost: start its worker, or remove it with "
        "`trainyard nodes remove h100-1`"
    )
    assert pending_reason(cluster, cpu) == too_few


def test_a_cluster_whose_only_node_is_lost_still_has_gpus(database: Database) -> None:
    with database.write() as session:
        factories.make_node(session, "h100-1", devices=4, device_type="h100", memory_mb=81920)
    lose(database, "h100-1")

    assert kind(database) == "cuda"


def test_the_answer_says_which_lost_node_auto_does_not_wait_for(cluster: Database) -> None:
    lose(cluster, "h100-1")
    document = JobDocument.from_json(AUTO)

    with cluster.read() as session:
        request = ClusterInventory().request(session, document, "default")
        (said,) = gpus(session).unused_by(document, request)

    assert "auto takes CPU slots, since h100-1, which has GPUs, is lost" in said
    assert "`trainyard nodes remove h100-1`" in said


def test_answer_names_the_lost_node_whose_gpus_a_job_waits_for(cluster: Database) -> None:
    lose(cluster, "h100-1")
    document = JobDocument.from_json(make_document(resource_config={"gpu_count": 4, "device_type": "auto"}))

    with cluster.read() as session:
        request = ClusterInventory().request(session, document, "default")
        (said,) = gpus(session).unused_by(document, request)

    assert request.device_kind == "cuda"
    assert "the job waits for GPUs, and h100-1, which has GPUs, is lost" in said
    assert "`trainyard nodes remove h100-1`" in said


def test_a_stopped_node_is_not_ready_and_returns_at_its_next_start(cluster: Database) -> None:
    job_id = queue(cluster, make_document())
    registry.mark_stopped(cluster, "slots")

    assert planner.plan_once(cluster) == []
    assert "slots could hold it but is lost" in pending_reason(cluster, job_id)
    registry.heartbeat(cluster, "slots")
    assert [placed.job_id for placed in planner.plan_once(cluster)] == [job_id]


def test_a_drained_node_stays_drained_when_its_worker_stops(cluster: Database) -> None:
    with cluster.write() as session:
        session.get_one(Node, "slots").state = "drained"

    registry.mark_stopped(cluster, "slots")

    with cluster.read() as session:
        assert session.get_one(Node, "slots").state == "drained"
