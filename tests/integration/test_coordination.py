"""Seat, reaper, mirror and revocations on both databases, with time passed in."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.domain.job_state import JobState
from app.extensions import Database
from app.models import Attempt, IdempotentReply, Job, Lease, Node, ProcessBeat
from app.models.base import utc_now
from app.services import housekeeping, lifecycle, mirrors, revocations, scheduling
from app.services.reaping import Reaper
from app.services.seats import PlannerSeat, is_provably_dead, own_identity
from config.settings import load_settings
from tasks.mirror import Mirror
from tests.factories import make_attempt, make_job, make_node

SETTINGS = load_settings({})  # TTL 15 s, nodes lost after 20 s, heartbeats every 5 s


def lives(_holder: str) -> bool:
    return False


# ---- the seat


def test_first_comer_plans_and_the_second_does_not(database: Database) -> None:
    first, second = PlannerSeat(database, "a:b:1:1", is_dead=lives), PlannerSeat(database, "a:b:2:2", is_dead=lives)

    assert first.hold(0.0)
    assert not second.hold(0.1)
    assert first.is_mine
    assert not second.is_mine


def test_seat_of_one_who_stands_still_is_taken(database: Database) -> None:
    first, second = PlannerSeat(database, "a:b:1:1", is_dead=lives), PlannerSeat(database, "a:b:2:2", is_dead=lives)
    first.hold(0.0)

    taken_at = next(now for now in range(10) if second.hold(float(now)))

    assert taken_at == 5
    assert not first.hold(20.0)


def test_seat_of_one_who_goes_on_is_never_taken(database: Database) -> None:
    first, second = PlannerSeat(database, "a:b:1:1", is_dead=lives), PlannerSeat(database, "a:b:2:2", is_dead=lives)

    for now in range(20):
        assert first.hold(float(now) * 1.1)
        assert not second.hold(float(now))


def test_seat_of_the_dead_is_taken_at_once(database: Database) -> None:
    PlannerSeat(database, "a:b:1:1").hold(0.0)
    second = PlannerSeat(database, "a:b:2:2", is_dead=lambda holder: holder == "a:b:1:1")

    assert second.hold(0.1)


def test_only_a_process_that_ran_here_is_provably_dead() -> None:
    me = own_identity()
    host, place, pid, start = me.rsplit(":", 3)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()

    assert not is_provably_dead(me)
    assert is_provably_dead(f"{host}:{place}:{child.pid}:1")
    assert is_provably_dead(f"{host}:{place}:{pid}:{int(start) - 1}")
    assert not is_provably_dead(f"{host}:another-boot/1:{child.pid}:1")
    assert not is_provably_dead("nonsense")


def test_zombie_is_dead() -> None:
    host, place, _, _ = own_identity().rsplit(":", 3)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    assert is_provably_dead(f"{host}:{place}:{child}:1")
    os.waitpid(child, 0)


# ---- the reaper


def held_job(db: Database, *, claimed: bool = True) -> str:
    with db.write() as session:
        job = make_job(session)
        node = session.get(Node, "box") or make_node(session, "box")
        make_attempt(session, job, node, claimed=claimed)
        return job.id


def look(reaper: Reaper, *, seconds: range, before: Callable[[int], None] = lambda _second: None) -> None:
    for second in seconds:
        before(second)
        reaper.sweep(float(second))


def state(db: Database, job_id: str) -> JobState:
    with db.read() as session:
        return session.get_one(Job, job_id).state


def renew(db: Database) -> None:
    with db.write() as session:
        for lease in session.query(Lease):
            lease.counter += 1


def heartbeat(db: Database) -> None:
    with db.write() as session:
        for node in session.query(Node):
            node.heartbeat += 1


def cause(db: Database, job_id: str) -> str | None:
    with db.read() as session:
        return session.get_one(Attempt, (job_id, 1)).cause


def test_lease_is_taken_after_its_time_and_not_before(database: Database) -> None:
    job_id, reaper = held_job(database), Reaper(database, SETTINGS, actor="test")

    look(reaper, seconds=range(15))
    assert state(database, job_id) is JobState.PREPARING

    look(reaper, seconds=range(15, 17))
    assert state(database, job_id) is JobState.QUEUED


def test_renewed_lease_is_kept(database: Database) -> None:
    job_id, reaper = held_job(database), Reaper(database, SETTINGS, actor="test")

    look(reaper, seconds=range(60), before=lambda second: renew(database) if second % 10 == 0 else None)

    assert state(database, job_id) is JobState.PREPARING


def test_time_in_which_nobody_looked_does_not_count(database: Database) -> None:
    job_id, reaper = held_job(database), Reaper(database, SETTINGS, actor="test")

    look(reaper, seconds=range(3))
    look(reaper, seconds=range(100, 110))

    assert state(database, job_id) is JobState.PREPARING


def test_cause_tells_node_from_supervisor(database: Database) -> None:
    alone, both = held_job(database), ""
    reaper = Reaper(database, SETTINGS, actor="test")
    look(reaper, seconds=range(17), before=lambda _second: heartbeat(database))
    assert cause(database, alone) == "SUPERVISOR_LOST"

    with database.write() as session:
        job = make_job(session)
        make_attempt(session, job, session.get_one(Node, "box"), device_indices=(1,))
        both = job.id
    look(reaper, seconds=range(17, 35))
    assert cause(database, both) == "NODE_LOST"


def test_attempt_that_nobody_took_up_goes_back_without_costing_a_retry(database: Database) -> None:
    job_id, reaper = held_job(database, claimed=False), Reaper(database, SETTINGS, actor="test")

    look(reaper, seconds=range(17))

    assert state(database, job_id) is JobState.QUEUED
    with database.read() as session:
        assert session.get_one(Job, job_id).retries_used == 0


def test_silent_node_is_lost_and_a_new_heartbeat_brings_it_back(database: Database) -> None:
    with database.write() as session:
        make_node(session, "box")
    reaper = Reaper(database, SETTINGS, actor="test")

    look(reaper, seconds=range(8))
    with database.read() as session:
        assert session.get_one(Node, "box").state == "ready"

    look(reaper, seconds=range(8, 10))
    with database.read() as session:
        assert session.get_one(Node, "box").state == "lost"


# ---- what is shown outside


class FakeCelery:
    """The parts of a Celery application that the mirror uses, with everything sent kept in lists."""

    class Runtime:
        def __init__(self, database: Database) -> None:
            self.database = database

    class Backend:
        expires = 60

        def __init__(self) -> None:
            self.keys: dict[str, str] = {}
            self.stored: list[tuple[str, str]] = []
            self.gathered: list[tuple[str, str]] = []
            self.client = self
            self.broken = False

        def get_key_for_task(self, job_id: str) -> str:
            return job_id

        def encode(self, result: dict[str, Any]) -> dict[str, Any]:
            return result

        @contextmanager
        def pipeline(self, *, transaction: bool) -> Iterator["FakeCelery.Backend"]:
            assert not transaction
            yield self
            self.gathered = []

        def keep(self, key: str, result: dict[str, Any]) -> None:
            assert (key, result["status"]) == (result["result"]["job_id"], result["result"]["state"])
            self.gathered.append((key, result["status"]))

        def publish(self, key: str, result: dict[str, Any]) -> None:
            assert self.gathered[-1] == (key, result["status"])

        def execute(self) -> None:
            if self.broken:
                raise ConnectionError("gone")
            self.stored += self.gathered

        def set(self, key: str, value: Any, *, nx: bool = False, ex: int = 0) -> bool:
            if ex:
                self.keep(key, value)
                return True
            if self.broken:
                raise ConnectionError("gone")
            assert nx
            if key in self.keys:
                return False
            self.keys[key] = value
            return True

    class Sender:
        def __init__(self) -> None:
            self.hostname, self.connection = "", self
            self.gathered: list[tuple[str, str, dict[str, Any]]] = []
            self.sent: list[tuple[str, str, dict[str, Any]]] = []

        def send(self, kind: str, **fields: Any) -> None:
            self.gathered.append((kind, self.hostname, fields))

        def flush(self) -> None:
            self.sent, self.gathered = [*self.sent, *self.gathered], []

        def close(self) -> None: ...

        def release(self) -> None: ...

    def __init__(self, database: Database) -> None:
        self.runtime = self.Runtime(database)
        self.backend = self.Backend()
        self.sender = self.Sender()
        self.events = self

    def connection_for_write(self) -> None: ...

    def Dispatcher(self, _connection: None, **_options: Any) -> "FakeCelery.Sender":  # noqa: N802
        return self.sender

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.sender.sent]


@pytest.fixture
def celery(database: Database) -> FakeCelery:
    return FakeCelery(database)


def test_change_is_shown_once_in_both_places(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job_id = make_job(session, name="first").id
    mirror = Mirror(celery)

    mirror.show_changes(0.0)
    mirror.show_changes(1.0)

    assert celery.backend.stored == [(job_id, "QUEUED")]
    assert celery.kinds() == ["task-received", "task-queued"]
    _, hostname, fields = celery.sender.sent[-1]
    assert hostname == "coordinator@queue"
    assert (fields["uuid"], fields["name"]) == (job_id, "SFT:first")


def test_start_of_each_attempt_is_told_under_its_node(database: Database, celery: FakeCelery) -> None:
    job_id, mirror = held_job(database), Mirror(celery)

    mirror.show_changes(0.0)
    mirror.show_changes(29.0)
    mirror.show_changes(31.0)

    assert celery.kinds() == ["task-received", "task-started", "task-preparing", "task-preparing"]
    assert celery.sender.sent[-1][1] == "node@box"
    with database.write() as session:
        job = lifecycle.load_for_change(session, job_id)
        lifecycle.transition(session, job, JobState.FAILED, actor="test", error_type="TRAINER_ERROR", error_message="x")
    mirror.show_changes(32.0)
    assert celery.kinds()[-1] == "task-failed"
    assert celery.sender.sent[-1][2]["exception"] == "TRAINER_ERROR: x"


def test_progress_is_shown_every_two_seconds_when_it_moved(database: Database, celery: FakeCelery) -> None:
    job_id, mirror = held_job(database), Mirror(celery)
    mirror.show_changes(10.0)
    mirror.show_changes(13.0)
    assert len(celery.backend.stored) == 1

    with database.write() as session:
        session.get_one(Job, job_id).current_step = 7
    mirror.show_changes(14.0)
    assert len(celery.backend.stored) == 1

    mirror.show_changes(15.5)
    assert len(celery.backend.stored) == 2


def test_what_could_not_be_shown_stays_due(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    mirror = Mirror(celery)
    celery.backend.broken = True

    with pytest.raises(ConnectionError):
        mirror.show_changes(0.0)
    celery.backend.broken = False
    mirror.show_changes(1.0)

    assert celery.backend.stored == [(job_id, "QUEUED")]


def test_backend_that_lost_everything_is_told_everything_again(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    mirror = Mirror(celery)
    mirror.show_changes(0.0)

    celery.backend.keys.clear()
    mirror.show_changes(6.0)

    assert celery.backend.stored == [(job_id, "QUEUED")] * 2


def test_change_during_mirroring_stays_due(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    (image,) = mirrors.changed(database)
    with database.write() as session:
        job = lifecycle.load_for_change(session, job_id)
        lifecycle.transition(session, job, JobState.PAUSED, actor="test")

    mirrors.mark_mirrored(database, [image])

    assert [due.state for due in mirrors.changed(database)] == ["PAUSED"]


# ---- the rest


def test_revoke_wishes_once_and_tells_the_node(database: Database) -> None:
    job_id = held_job(database)
    nudged: list[tuple[str, str]] = []

    for _ in range(2):
        revocations.revoke_job(database, job_id, lambda *told: nudged.append(told))

    assert nudged[0] == (job_id, "box")
    with database.read() as session:
        assert session.get_one(Job, job_id).requested == "cancel"


def never(*told: str) -> None:
    pytest.fail(f"nudged: {told}")


def test_revoke_of_an_ended_or_unknown_job_changes_nothing(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session, state=JobState.COMPLETED).id

    revocations.revoke_job(database, job_id, never)
    revocations.revoke_job(database, "job-unknown", never)

    assert state(database, job_id) is JobState.COMPLETED


def test_old_replies_and_silent_coordinators_are_dropped(database: Database) -> None:
    old = utc_now().replace(year=2020)
    with database.write() as session:
        for key, at in (("old", old), ("new", utc_now())):
            session.add(
                IdempotentReply(
                    project="p",
                    key_id="k",
                    idempotency_key=key,
                    request_hash="",
                    status_code=201,
                    body={},
                    created_at=at,
                )
            )
            session.add(ProcessBeat(name=f"coordinator@{key}", kind="coordinator", last_seen_at=at))
    scheduling.hold_planner(database, "me")

    housekeeping.drop_old_replies(database)
    housekeeping.drop_dead_coordinators(database)

    with database.read() as session:
        assert [reply.idempotency_key for reply in session.query(IdempotentReply)] == ["new"]
        assert {beat.name for beat in session.query(ProcessBeat)} == {"coordinator@new", "planner"}
