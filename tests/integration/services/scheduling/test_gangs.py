"""Attempts on several nodes: placed as a whole or not at all, ended once, free node by node; on both databases."""

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.gang_placement import GangPart
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import SchedulingPolicy
from app.domain.scheduling.resources import Device
from app.models import Job, Lease, Node, NodeFault, Reservation
from app.services.attempts import gang_parts, leases, rendezvous, work_orders
from app.services.attempts.work_orders import WorkOrder
from app.services.nodes import registry
from app.services.operations import integrity
from app.services.queues import project_quotas
from app.services.scheduling import placement as placing
from app.services.scheduling import planner, running_jobs
from tests.builders import factories
from tests.builders.walks import (
    BROKEN,
    NO_WAIT,
    ON_TWO_NODES,
    attempt_of,
    job_of,
    live_nodes,
    make_gang,
    make_job,
    make_node,
    start_gang,
)

pytestmark = pytest.mark.both_databases

STOPPED = Outcome(kind="paused", end_step=4, exit_code=0)


@pytest.fixture
def gang(database: Database) -> str:
    return make_gang(database)


def held(db: Database) -> dict[str, int]:
    with db.read() as session:
        rows = session.scalars(select(Reservation.node)).all()
        return {name: rows.count(name) for name in rows}


def revoke(db: Database, node: str, cause: str = "NODE_LOST") -> bool:
    (seen,) = leases.live(db, node=node)
    return leases.revoke(db, seen, cause=cause, message=f"{node} is gone", actor="reaper", backoff=NO_WAIT)


def ended_part_node(db: Database, work: WorkOrder) -> str:
    """The node whose gang part has ended, so that this part must end too; empty if there is none."""
    return leases.renew(db, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0).part_ended


def test_all_parts_are_placed_at_once_with_a_message_for_each(database: Database, gang: str) -> None:
    dispatched = planner.plan_once(database)

    assert [(each.job_id, each.node) for each in dispatched] == [(gang, "n1"), (gang, "n2")]
    assert attempt_of(database, gang).node_names == ["n1", "n2"]
    assert attempt_of(database, gang).device_indices == [[0, 1], [0, 1]]
    assert held(database) == {"n1": 2, "n2": 2}
    assert job_of(database, gang).node_names == ["n1", "n2"]
    assert list(integrity.problems(database)) == []


def test_a_gang_is_never_placed_in_part(database: Database, gang: str) -> None:
    pair = (Device(index=0, type="cpu"), Device(index=1, type="cpu"))
    placement = Placement(job_id=gang, node="n1", devices=pair, others=(GangPart(node="n2", devices=pair),))
    with database.write() as session:
        session.get_one(Node, "n2").state = "draining"

    assert placing.place(database, [placement], "planner") == []

    assert held(database) == {}
    assert job_of(database, gang).state is JobState.QUEUED


def test_each_node_claims_its_own_part(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")

    assert (first.part, first.ranks_per_node, first.world_size) == (0, 2, 4)
    assert (second.part, second.ranks_per_node, second.world_size) == (1, 2, 4)
    assert second.lease_id != first.lease_id
    assert second.node == "n2"
    assert leases.claim(database, job_id=gang, attempt=1, node="n2", boot_id="b") is None
    assert job_of(database, gang).state is JobState.PREPARING


def test_the_first_part_waits_for_the_others_and_ends_the_attempt(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    done = Outcome(kind="completed", end_step=9, ran_seconds=3.0, exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)

    assert gang_parts.finish(database, first, done, NO_WAIT) is None
    assert live_nodes(database) == ["n1", "n2"]
    assert gang_parts.finish(database, second, Outcome(kind="completed", exit_code=0), NO_WAIT) is None
    assert live_nodes(database) == ["n1"]
    assert held(database) == {"n1": 2}
    ending = gang_parts.finish(database, first, done, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.COMPLETED
    assert held(database) == {}
    assert attempt_of(database, gang).end_step == 9
    assert list(integrity.problems(database)) == []


def test_parts_that_hang_at_exit_are_asked_to_end(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    done = Outcome(kind="completed", end_step=9, exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)
    assert gang_parts.finish(database, first, done, NO_WAIT) is None
    assert ended_part_node(database, second) == ""

    gang_parts.end_others(database, first, done)

    assert ended_part_node(database, second) == "n1"
    killed = Outcome(kind="failed", cause="RANK_KILLED", message="its part on node n1 has ended", exit_code=137)
    assert gang_parts.finish(database, second, killed, NO_WAIT) is None
    ending = gang_parts.finish(database, first, done, NO_WAIT)
    assert ending is not None
    assert ending.state is JobState.COMPLETED
    assert attempt_of(database, gang).end_step == 9
    assert list(integrity.problems(database)) == []


@pytest.mark.parametrize("cause", ["NODE_LOST", "SUPERVISOR_LOST"])
def test_a_training_that_is_done_stays_done_when_another_node_is_lost_then(
    database: Database, gang: str, cause: str
) -> None:
    first, _ = start_gang(database, gang, "n1", "n2")
    done = Outcome(kind="completed", end_step=9, exit_code=0)
    work_orders.enter_phase(database, first, JobState.TRAINING)
    assert gang_parts.finish(database, first, done, NO_WAIT) is None

    assert revoke(database, "n2", cause)
    ending = gang_parts.finish(database, first, done, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.COMPLETED


def test_a_part_is_not_ended_twice(database: Database, gang: str) -> None:
    _, second = start_gang(database, gang, "n1", "n2")
    gang_parts.finish(database, second, BROKEN, NO_WAIT)

    with pytest.raises(LeaseLost):
        gang_parts.finish(database, second, BROKEN, NO_WAIT)


def test_when_one_part_breaks_the_others_are_notified_and_the_job_recovers_once(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    killed = Outcome(kind="failed", cause="HOST_OUT_OF_MEMORY", message="rank 2 was killed", exit_code=137)

    gang_parts.finish(database, second, killed, NO_WAIT)
    renewal = leases.renew(database, lease_id=first.lease_id, fence=first.fence, ran_seconds=1.0)
    ending = gang_parts.finish(database, first, BROKEN, NO_WAIT)

    assert renewal.part_ended == "n2"
    assert ending is not None
    assert ending.state is JobState.QUEUED
    record = attempt_of(database, gang)
    assert (record.cause, record.end_reason, record.end_step) == ("HOST_OUT_OF_MEMORY", "rank 2 was killed", 4)
    assert job_of(database, gang).retries_used <= 1
    assert held(database) == {}
    assert live_nodes(database) == []


def test_a_lost_node_explains_what_the_others_say(database: Database, gang: str) -> None:
    first, _ = start_gang(database, gang, "n1", "n2")
    script = Outcome(kind="failed", cause="SCRIPT_ERROR", message="connection refused", exit_code=1)

    assert gang_parts.finish(database, first, script, NO_WAIT) is None
    assert revoke(database, "n2")
    ending = gang_parts.finish(database, first, script, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.QUEUED
    assert attempt_of(database, gang).cause == "NODE_LOST"


def test_when_the_first_node_is_lost_the_last_part_ends_the_attempt(database: Database, gang: str) -> None:
    _, second = start_gang(database, gang, "n1", "n2")

    assert revoke(database, "n1")
    assert live_nodes(database) == ["n2"]
    assert leases.renew(database, lease_id=second.lease_id, fence=second.fence, ran_seconds=1.0).part_ended == "n1"
    ending = gang_parts.finish(database, second, BROKEN, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.QUEUED
    assert attempt_of(database, gang).cause == "NODE_LOST"
    assert [d.node for d in planner.plan_once(database)] == ["n1", "n2"]


def test_when_all_nodes_are_lost_the_reaper_ends_it(database: Database, gang: str) -> None:
    start_gang(database, gang, "n1", "n2")

    assert revoke(database, "n2")
    assert revoke(database, "n1", "SUPERVISOR_LOST")

    job = job_of(database, gang)
    assert (job.state, job.host_losses, job.retries_used) == (JobState.QUEUED, 1, 1)


def test_only_the_node_that_failed_is_blamed(database: Database, gang: str) -> None:
    first, _ = start_gang(database, gang, "n1", "n2")

    revoke(database, "n2")
    gang_parts.finish(database, first, BROKEN, NO_WAIT)

    with database.read() as session:
        blamed = session.query(NodeFault).one()
    assert (blamed.node, blamed.cause, blamed.is_proven) == ("n2", "NODE_LOST", False)


def test_a_part_that_is_not_taken_up_any_more_ends_the_others(database: Database, gang: str) -> None:
    planner.plan_once(database)
    leases.claim(database, job_id=gang, attempt=1, node="n1", boot_id="b")
    first = work_orders.load_work(database, gang, 1, node="n1")
    revoke(database, "n2")

    assert leases.renew(database, lease_id=first.lease_id, fence=first.fence, ran_seconds=1.0).part_ended == "n2"
    ending = gang_parts.finish(database, first, Outcome(kind="failed", cause="RANK_KILLED", exit_code=1), NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.QUEUED
    assert job_of(database, gang).retries_used == 0


def test_a_pause_reaches_all_and_pauses_the_job(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    with database.write() as session:
        job = session.get_one(Job, gang)
        job.requested = "pause"

    for work in (first, second):
        renewal = leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)
        assert renewal.requested == "pause"
    assert gang_parts.finish(database, first, STOPPED, NO_WAIT) is None
    assert gang_parts.finish(database, second, STOPPED, NO_WAIT) is None
    ending = gang_parts.finish(database, first, STOPPED, NO_WAIT)

    assert ending is not None
    assert ending.state is JobState.PAUSED
    assert attempt_of(database, gang).ending is None


@pytest.mark.parametrize("waits", [True, False], ids=["first part waits", "first part has waited long enough"])
def test_a_halt_of_which_only_the_first_part_knows_pauses_the_job(
    database: Database, gang: str, *, waits: bool
) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    halted = Outcome(kind="paused", message="halted at step 4", end_step=4, exit_code=0)

    assert gang_parts.finish(database, first, halted, NO_WAIT) is None
    if not waits:
        gang_parts.end_others(database, first, halted)
        assert gang_parts.finish(database, first, halted, NO_WAIT, waits=False) is None
    ended = [gang_parts.finish(database, second, Outcome(kind="completed", exit_code=0), NO_WAIT)]
    if waits:
        ended.append(gang_parts.finish(database, first, halted, NO_WAIT))

    assert ended[-1] is not None
    assert ended[-1].state is JobState.PAUSED
    assert (job_of(database, gang).status_reason, job_of(database, gang).retries_used) == ("halted at step 4", 0)


def test_gpu_time_counts_each_part(database: Database) -> None:
    for name in ("n1", "n2"):
        make_node(database, name, device_type="h100", memory_mb=80_000)
    document = factories.make_document(resource_config={"gpu_count": 2, "node_count": 2, "device_type": "cuda"})
    job_id = make_job(database, state=JobState.QUEUED, document=document)
    first, second = start_gang(database, job_id, "n1", "n2")
    with database.read() as session:
        assert project_quotas.usage(session, "default").devices["cuda"] == 4

    gang_parts.finish(database, second, Outcome(kind="failed", cause="INTERNAL", ran_seconds=10.0), NO_WAIT)
    gang_parts.finish(database, first, Outcome(kind="failed", cause="RANK_KILLED", ran_seconds=20.0), NO_WAIT)

    assert job_of(database, job_id).gpu_seconds == pytest.approx(60.0)


def test_the_planner_knows_what_preempting_it_on_one_node_frees_elsewhere(database: Database, gang: str) -> None:
    start_gang(database, gang, "n1", "n2")

    with database.read() as session:
        found = running_jobs.running(session)

    seen = sorted((each.node, each.amount, each.released_devices) for each in found)
    assert seen == [("n1", 2.0, 4.0), ("n2", 2.0, 4.0)]


def test_a_process_left_behind_takes_only_its_own_node_out_of_service(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")

    gang_parts.finish(database, second, Outcome(kind="failed", cause="HANG", left_behind=True), NO_WAIT)
    gang_parts.finish(database, first, BROKEN, NO_WAIT)

    with database.read() as session:
        stuck = {each.name: set(each.out_of_service) for each in registry.capacities(session)}
    assert stuck == {"n1": set(), "n2": {0, 1}}


def test_a_drained_node_asks_the_whole_job(database: Database, gang: str) -> None:
    first, _ = start_gang(database, gang, "n1", "n2")

    assert registry.request_requeue(database, "n2") == 1

    renewal = leases.renew(database, lease_id=first.lease_id, fence=first.fence, ran_seconds=1.0)
    assert renewal.requested == "requeue"


def test_the_nodes_that_are_kept_for_it_are_remembered_until_it_starts(database: Database) -> None:
    for name in ("n1", "n2"):
        make_node(database, name, devices=2)
    before = [make_job(database, state=JobState.QUEUED) for _ in range(2)]
    at_once = SchedulingPolicy(reserve_after_seconds=0.0)
    assert {each.node for each in planner.plan_once(database)} == {"n1", "n2"}
    gang = make_job(database, state=JobState.QUEUED, document=ON_TWO_NODES)

    assert planner.plan_once(database, policy=at_once) == []
    job = job_of(database, gang)
    assert (job.awaits_node, job.awaits_others) == ("n1", ["n2"])
    urgent = make_job(database, state=JobState.QUEUED, priority=10)
    assert planner.plan_once(database, policy=at_once) == []

    for name in ("n1", "n2"):
        assert revoke(database, name)
    with database.write() as session:
        for job_id in before:
            session.get_one(Job, job_id).status = JobState.CANCELLED
    assert {each.job_id for each in planner.plan_once(database, policy=at_once)} == {gang}
    assert job_of(database, gang).awaits_node == ""
    assert job_of(database, urgent).state is JobState.QUEUED


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_node_has_threads_for_its_own_cores_and_all_what_the_first_one_presets(
    database: Database, order: tuple[int, int]
) -> None:
    make_node(database, "n1", devices=2, cpu_cores=16, limits={"checkpoint_interval_epochs": 3})
    make_node(database, "n2", devices=2, cpu_cores=4, limits={"checkpoint_interval_epochs": 5})
    gang = make_job(database, state=JobState.QUEUED, document=ON_TWO_NODES)
    planner.plan_once(database)
    for name in ("n1", "n2"):
        leases.claim(database, job_id=gang, attempt=1, node=name, boot_id="boot")

    works = {place: work_orders.load_work(database, gang, 1, node=f"n{place + 1}") for place in order}

    assert [works[place].threads_per_rank for place in (0, 1)] == [8, 2]
    assert works[0].node_defaults == works[1].node_defaults == {"checkpoint_interval_epochs": 3}
    assert job_of(database, gang).threads_per_rank == 8


def test_two_live_leases_for_one_part_are_impossible(database: Database, gang: str) -> None:
    def again(work: WorkOrder) -> None:
        with database.write() as session:
            session.add(Lease(id="lease-x", job_id=gang, attempt=2, fence=9, node="n3", part=work.part))

    first, _ = start_gang(database, gang, "n1", "n2")

    with pytest.raises(Exception, match=r"(?i)unique"):
        again(first)


def test_nodes_settle_where_to_meet_when_all_are_prepared(database: Database, gang: str) -> None:
    first, second = start_gang(database, gang, "n1", "n2")
    assert not rendezvous.are_others_prepared(database, first)
    assert rendezvous.place(database, second) is None

    rendezvous.report_prepared(database, second)
    assert rendezvous.are_others_prepared(database, first)
    place = rendezvous.RendezvousAddress(address="10.0.0.1", port=20001, checkpoint_id="ckpt-1")
    rendezvous.publish_address(database, first, place)

    assert rendezvous.place(database, second) == place
    gang_parts.finish(database, second, BROKEN, NO_WAIT)
    gang_parts.finish(database, first, BROKEN, NO_WAIT)
    with pytest.raises(LeaseLost):
        rendezvous.publish_address(database, first, place)
