"""Devices that are out of service: who marks them, who is not given them, and who puts them back."""

import os
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import Conflict
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.filters import examine, explain
from app.domain.scheduling.resources import NOTHING, Request
from app.domain.scheduling.resources import Device as RowDevice
from app.domain.scheduling.start_estimates import DeviceRelease, starts
from app.host import processes
from app.models import Job, Node, StuckDevice
from app.models.base import utc_now
from app.services.access.api_keys import ADMINISTRATOR
from app.services.attempts import leases, work_orders
from app.services.nodes import maintenance, registry, stuck_devices
from app.services.nodes.registry import NodeReport
from app.services.operations.diagnosis import stuck
from app.services.operations.diagnosis.findings import Level
from app.services.operations.diagnosis.site import Site
from tests.builders.leaving_behind import held, offered, out_of_service, stuck_device_messages
from tests.systems.supervising import NODE, SLEEPS, World
from workers.node.attempt_manager import AttemptManager
from workers.run_dir.cleanup import settle
from workers.run_dir.layout import remove_earlier, run_directory
from workers.run_dir.process_registry import ProcessRegistry


def test_kept_directories_of_the_dead_cost_a_start_nothing(world, monkeypatch):
    for number in range(20):
        run = run_directory(world.data_dir, f"job-{number}", 1)
        run.make()
        calls = ProcessRegistry(run, held(f"job-{number}", 0))
        calls.record(os.getpid())
        calls.mark_ended()
    looked: list[str] = []

    def look(job_id: str, _attempt: int, *, root_pid: int = 0) -> list[int]:
        looked.append(job_id)
        return []

    monkeypatch.setattr(processes, "processes_of_attempt", look)
    job_id = world.submit(SLEEPS)
    attempt = world.dispatch(job_id)

    settle(world.settings, world.db, job_id, attempt, node=NODE)

    assert looked == []


@pytest.fixture
def left(world):
    """A job whose attempt on device 1 has ended and, as far as the database says, left a process behind."""
    job_id = world.submit(SLEEPS)
    world.dispatch(job_id, first_device=1)
    (lease,) = leases.live(world.db)
    backoff = leases.NO_RETRY
    assert leases.revoke(
        world.db, lease, cause="SUPERVISOR_LOST", message="", actor="x", backoff=backoff, left_behind=True
    )
    assert (out_of_service(world), offered(world)) == ([1], {0, 2, 3})
    return job_id


def registered(world: World, devices: int = 4) -> None:
    """As the node's worker does it when it starts."""
    of = tuple(RowDevice(index=index, type="cpu") for index in range(devices))
    report = NodeReport(
        name=NODE, devices=of, cpu_cores=2, ram_mb=1, storage_mb=1, sandbox="", version="", boot_id=processes.place()
    )
    registry.register(world.db, report)


BOOT = processes.place().partition("/")[0]


@pytest.mark.parametrize(
    ("place", "seen_seconds_ago", "comes_back"),
    [
        (processes.place(), 0, True),  # nothing of it runs
        (f"{BOOT}/1", 1e6, False),  # another container: it may live
        ("another-boot/1", 1e6, True),
        ("another-boot/1", 5, False),  # reported recently: by another machine of this name
    ],
)
def test_what_has_no_directory_any_more_is_judged_by_its_place(world, left, place, seen_seconds_ago, comes_back):
    with world.db.write() as session:
        row = session.query(StuckDevice).one()
        row.place, row.seen_at = place, utc_now() - timedelta(seconds=seen_seconds_ago)

    AttemptManager(world.settings, world.db, NODE).clean()

    assert out_of_service(world) == ([] if comes_back else [1])


@pytest.mark.parametrize(("place", "comes_back"), [(f"{BOOT}/1", False), ("another-boot/1", True)])
def test_directory_of_another_place_is_let_alone_unless_the_machine_was_restarted(world, left, place, comes_back):
    run = run_directory(world.data_dir, left, 1)
    run.make()
    calls = ProcessRegistry(run, held(left, 1, place=place))
    calls.record(os.getpid())
    calls.mark_left_behind()

    AttemptManager(world.settings, world.db, NODE).clean()

    assert out_of_service(world) == ([] if comes_back else [1])
    assert run.path.exists() != comes_back


def test_only_the_attempt_that_holds_them_gives_them_back(world, left):
    stuck_devices.mark(world.db, held(left, 1, attempt=2), actor="x")
    assert stuck_devices.put_back(world.db, "another", left, 1) == 0
    assert stuck_devices.put_back(world.db, NODE, "job-of-yesterday", 1) == 0
    assert stuck_devices.put_back(world.db, NODE, left, 1) == 1
    assert out_of_service(world) == [1], "the second one still holds it"
    assert stuck_devices.put_back(world.db, NODE, left, 2) == 1
    assert out_of_service(world) == []


def test_marks_outlive_the_rows_of_job_and_node(world, left):
    with world.db.write() as session:
        session.get_one(Node, NODE).state = "lost"
    maintenance.remove(world.db, ADMINISTRATOR, NODE)
    registered(world, devices=1)
    registered(world, devices=4)
    with world.db.write() as session:
        session.delete(session.get_one(Job, left))
    assert (out_of_service(world), offered(world)) == ([1], {0, 2, 3})

    stuck_devices.mark(world.db, held(left, 1, 2), actor="x")

    assert out_of_service(world) == [1, 2], "what is seen of a deleted job counts too"


def test_process_that_is_seen_late_takes_devices_out_that_another_attempt_has(world):
    first, second = world.submit(SLEEPS), world.submit(SLEEPS)
    world.dispatch(second)

    stuck_devices.mark(world.db, held(first, 0), actor="x")
    stuck_devices.mark(world.db, held(first, 0), actor="x")

    assert out_of_service(world) == [0]
    assert len(stuck_device_messages(world, first)) == 1
    assert world.job(second).state is JobState.SCHEDULING
    with world.db.write() as session:
        session.get_one(Job, second).status = JobState.TRAINING
    work = work_orders.load_work(world.db, second, 1)
    ending = work_orders.finish(
        world.db, work, Outcome(kind="failed", cause="RANK_KILLED"), leases.NO_RETRY, may_restart=True
    )
    assert (ending.state, ending.restart) == (JobState.QUEUED, None), "it is not restarted there"
    assert offered(world) == {1, 2, 3}


def test_put_back_by_hand_is_refused_while_the_node_still_sees_the_process(world, left):
    with pytest.raises(Conflict, match="was seen on node local within the last 60 s"):
        stuck_devices.put_back_by_hand(world.db, ADMINISTRATOR, NODE)

    with world.db.write() as session:
        session.query(StuckDevice).one().seen_at = utc_now() - timedelta(seconds=61)
    assert stuck_devices.put_back_by_hand(world.db, ADMINISTRATOR, NODE) == 1
    assert out_of_service(world) == []


def test_supervisor_removes_only_the_directories_of_its_own_earlier_attempts(world):
    directories = [run_directory(world.data_dir, "job-1", number) for number in (1, 2, 3, 4)]
    for run in directories:
        run.make()
    directories[1].write_supervisor(processes.own_identity())
    directories[2].write_supervisor(replace(processes.own_identity(), start_ticks=1))

    remove_earlier(directories[3])

    assert [run.path.exists() for run in directories] == [True, False, True, True]


def test_doctor_names_the_job(world, left):
    (finding,) = stuck.leases(Site(world.settings, lambda: world.db))

    assert left in finding.message
    assert "out of service" in finding.message
    assert finding.level is Level.WARNING


def test_waiting_job_is_shown_that_devices_are_out_of_service(world, left):
    with world.db.read() as session:
        (node,) = registry.capacities(session)

    assert explain(Request(device_count=4), [node]) == (
        "needs 4 CPU slots on one node; free: 3 on local (1 out of service); gpu_count 3 would fit on local now"
    )
    found = {each.filter: each.reason for each in examine(Request(device_count=4), node)}
    assert found["free_devices"] == "3 of 4 such devices are free (1 out of service)"
    ending = DeviceRelease(seconds=5.0, node=NODE, devices=frozenset({1}), quantities=NOTHING)
    assert starts([Request(device_count=4)], [node], [ending]) == [None]
