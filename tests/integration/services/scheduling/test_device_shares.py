"""Several attempts on one device, on both databases."""

import threading

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.resources import Device
from app.models import Attempt, Job, Project, Reservation
from app.services.access.api_keys import ADMINISTRATOR
from app.services.attempts import leases, recovery, work_orders
from app.services.lifecycle import transitions
from app.services.nodes import listing, registry, stuck_devices
from app.services.nodes.stuck_devices import HeldDevices
from app.services.operations import cluster_summary, integrity
from app.services.scheduling import placement as placing
from app.services.scheduling import planner
from tests.builders import factories
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, start_attempt

pytestmark = pytest.mark.both_databases

H100 = Device(index=0, type="h100", memory_mb=80_000)


def queued(db: Database, *, queue: str = "default", **resources: object) -> str:
    document = factories.make_document(resource_config={"device_type": "cuda", **resources})
    return make_job(db, state=JobState.QUEUED, document=document, queue=queue)


def make_h100s(db: Database, count: int = 1) -> None:
    make_node(db, devices=count, device_type="h100", memory_mb=80_000, simulated=True, cpu_cores=16)


def given_out(db: Database) -> dict[tuple[str, int], int]:
    with db.read() as session:
        return registry.shares(session)


def placed(db: Database) -> set[str]:
    return {each.job_id for each in planner.plan_once(db)}


def test_jobs_share_a_device_up_to_the_whole_and_the_rest_waits_for_it(database: Database) -> None:
    make_h100s(database)
    half, quarter = queued(database, gpu_fraction=0.5), queued(database, gpu_memory_request_mb=20_000)
    too_much, whole = queued(database, gpu_fraction=0.26), queued(database)

    assert placed(database) == {half, quarter}

    assert given_out(database) == {("n1", 0): 75}
    assert job_of(database, too_much).pending_reason == (
        "needs 0.26 of 1 GPU on one node; free: 0.25 of device 0 on n1"
    )
    assert job_of(database, whole).pending_reason == "needs 1 GPU on one node; free: 0 on n1"
    with database.read() as session:
        shares = {row.job_id: row.device_share for row in session.scalars(select(Attempt))}
        (counted,) = cluster_summary.devices_by_type(session)
        (device,) = listing.find(session, "n1").devices
    assert shares == {half: 50, quarter: 25}
    assert (counted.total, counted.in_use, counted.share_in_use, counted.free) == (1, 1, 0.75, 0)
    assert (device.in_use, device.share_in_use) == (True, 0.75)


@pytest.mark.parametrize("limits", [{}, {"share_across_projects": True}])
def test_jobs_of_another_project_share_a_device_only_where_its_operator_lets_them(
    database: Database, limits: dict[str, bool]
) -> None:
    make_node(database, devices=1, device_type="h100", memory_mb=80_000, simulated=True, cpu_cores=16, limits=limits)
    first, second = queued(database, gpu_fraction=0.5), queued(database, gpu_fraction=0.25)
    assert placed(database) == {first, second}
    with database.write() as session:
        session.add(Project(name="other"))
    third = queued(database, gpu_fraction=0.25)
    with database.write() as session:
        session.get_one(Job, third).project = "other"
    plan = Placement(job_id=third, node="n1", devices=(H100,), share=25)

    late = [each.job_id for each in placing.place(database, [plan], "another planner")] if not limits else []
    again = placed(database)

    assert (late, again) == ([], {third} if limits else set())
    if not limits:
        assert job_of(database, third).pending_reason == (
            "needs 0.25 of 1 GPU on one node; free: nothing on n1 (1 shared by jobs of other projects)"
        )


def test_of_two_projects_that_one_transaction_places_on_a_device_one_gets_it(database: Database) -> None:
    make_h100s(database)
    with database.write() as session:
        session.add(Project(name="other"))
    first, second = queued(database, gpu_fraction=0.5), queued(database, gpu_fraction=0.25)
    with database.write() as session:
        session.get_one(Job, second).project = "other"
    both = [
        Placement(job_id=job_id, node="n1", devices=(H100,), share=share)
        for job_id, share in ((first, 50), (second, 25))
    ]

    with database.write() as session:
        dispatched = placing.apply(session, both, "test")

    assert [each.job_id for each in dispatched] == [first]
    assert given_out(database) == {("n1", 0): 50}
    assert job_of(database, second).state is JobState.QUEUED


def test_ended_job_gives_back_its_share_and_pays_for_that_only(database: Database) -> None:
    make_h100s(database)
    first, second = queued(database, gpu_fraction=0.5), queued(database, gpu_fraction=0.5)
    assert placed(database) == {first, second}
    for job_id in (first, second):
        assert leases.claim(database, job_id=job_id, attempt=1, node="n1", boot_id="b") is not None
    work = work_orders.load_work(database, first, 1)

    work_orders.finish(database, work, Outcome(kind="failed", cause="SCRIPT_ERROR", ran_seconds=10.0), NO_WAIT)

    assert job_of(database, first).gpu_seconds == 5.0
    assert given_out(database) == {("n1", 0): 50}
    third = queued(database, gpu_fraction=0.5)
    assert placed(database) == {third}


def test_a_share_brings_its_part_of_the_cores_of_its_device(database: Database) -> None:
    make_h100s(database, 2)  # of 16 cores

    work = start_attempt(database, queued(database, gpu_fraction=0.5))

    assert (work.device_share, work.threads_per_rank) == (50, 4)


def test_a_restart_in_place_keeps_the_share(database: Database) -> None:
    make_h100s(database)
    job_id = queued(database, gpu_fraction=0.25)
    start_attempt(database, job_id)

    with database.write() as session:
        job = transitions.load_for_change(session, job_id)
        recovery.restart_in_place(session, job, session.get_one(Attempt, (job_id, 1)))

    assert given_out(database) == {("n1", 0): 25}
    assert work_orders.load_work(database, job_id, 2).device_share == 25


def test_a_process_left_behind_takes_all_of_the_device(database: Database) -> None:
    make_h100s(database)
    work = start_attempt(database, queued(database, gpu_fraction=0.25))
    held = HeldDevices(node="n1", devices=(0,), job_id=work.job_id, attempt=1, place="b")

    stuck_devices.mark(database, held, actor="test")

    waiting = queued(database, gpu_fraction=0.25)
    assert placed(database) == set()
    assert "nothing on n1 (1 out of service)" in job_of(database, waiting).pending_reason


@pytest.mark.parametrize("shares", [(50,), (34,), (100,), (60, 25), (100, 30)])
def test_planners_at_once_never_give_out_more_than_the_whole(database: Database, shares: tuple[int, ...]) -> None:
    """All have seen the device empty, and place at the same moment: from queues of their own, whose locks they hold."""
    make_h100s(database)
    asked = [shares[n % len(shares)] for n in range(8)]
    wanted = [(queued(database, queue=f"q{n}", gpu_fraction=each / 100), each) for n, each in enumerate(asked)]
    together, placings = threading.Barrier(len(wanted)), []

    def place(job_id: str, share: int) -> None:
        together.wait()
        placement = Placement(job_id=job_id, node="n1", devices=(H100,), share=share)
        if placing.place(database, [placement], "test"):
            placings.append(share)

    threads = [threading.Thread(target=place, args=each) for each in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert given_out(database) == {("n1", 0): sum(placings)}
    assert sum(placings) <= 100
    assert 100 - sum(placings) < min(shares), "as many as find room get it"


def test_a_whole_device_given_twice_is_refused_by_the_database(database: Database) -> None:
    make_h100s(database)
    first, second = queued(database), queued(database)
    with database.write() as session:
        session.add(Reservation(node="n1", device_index=0, job_id=first, attempt=1))

    with pytest.raises(IntegrityError), database.write() as session:
        session.add(Reservation(node="n1", device_index=0, job_id=second, attempt=1))


def test_a_database_in_which_a_device_is_given_out_beyond_the_whole_is_called_wrong(database: Database) -> None:
    make_h100s(database)
    with database.write() as session:
        for share in (60, 41):
            job = factories.make_job(session)
            session.add(Reservation(node="n1", device_index=0, job_id=job.id, attempt=1, share=share))

    assert "devices are allocated more than once: n1" in list(integrity.problems(database))


def test_a_slice_is_handed_on_with_its_uuid(database: Database) -> None:
    report = registry.NodeReport(
        name="n1",
        cpu_cores=16,
        ram_mb=1000,
        storage_mb=1000,
        sandbox="none",
        version="1",
        boot_id="b",
        devices=(
            Device(index=0, type="h100", memory_mb=80_000),
            Device(index=2000, type="h100-mig-1g.10gb", memory_mb=9_728, uuid="MIG-a"),
        ),
    )
    registry.register(database, report)

    work = start_attempt(database, queued(database, mig_profile="1g.10gb", gpu_type="H100"))

    assert work.devices == report.devices[1:]
    with database.read() as session:
        counted = {each.type: (each.total, each.free) for each in cluster_summary.devices_by_type(session)}
    assert counted == {"h100": (1, 1), "h100-mig-1g.10gb": (1, 0)}


def test_a_share_in_use_is_shown_to_administrators(database: Database) -> None:
    make_h100s(database, 2)
    queued(database, gpu_fraction=0.3)
    planner.plan_once(database)

    with database.read() as session:
        seen = cluster_summary.summarize(session, ADMINISTRATOR, failing={})

    assert [(each.share_in_use, each.free) for each in seen.devices] == [(0.3, 1)]
