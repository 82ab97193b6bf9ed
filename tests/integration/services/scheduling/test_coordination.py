"""Leader election, reaper and revocations on both databases, with an injected clock."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.host.process_names import is_provably_dead, own_name
from app.models import Attempt, IdempotentReply, Job, Lease, Node, ProcessBeat
from app.models.base import utc_now
from app.services.attempts.lost_leases_and_nodes import Reaper
from app.services.jobs.control import revocation
from app.services.nodes import registry
from app.services.operations import housekeeping
from app.services.scheduling import planner
from app.services.scheduling.leader_election import LeaderLease
from config.settings import load_settings
from tests.builders.factories import make_attempt, make_job, make_node

pytestmark = pytest.mark.both_databases

SETTINGS = load_settings({})  # TTL 15 s, nodes lost after 20 s, heartbeats every 5 s


def lives(_holder: str) -> bool:
    return False


# ---- leader election


def test_first_comer_plans_and_the_second_does_not(database: Database) -> None:
    first, second = LeaderLease(database, "a:b:1:1", is_dead=lives), LeaderLease(database, "a:b:2:2", is_dead=lives)

    assert first.acquire(0.0)
    assert not second.acquire(0.1)
    assert first.is_leader
    assert not second.is_leader


def test_leadership_of_a_stalled_coordinator_is_taken(database: Database) -> None:
    first, second = LeaderLease(database, "a:b:1:1", is_dead=lives), LeaderLease(database, "a:b:2:2", is_dead=lives)
    first.acquire(0.0)

    taken_at = next(now for now in range(10) if second.acquire(float(now)))

    assert taken_at == 5
    assert not first.acquire(20.0)


def test_leadership_of_an_active_coordinator_is_never_taken(database: Database) -> None:
    first, second = LeaderLease(database, "a:b:1:1", is_dead=lives), LeaderLease(database, "a:b:2:2", is_dead=lives)

    for now in range(20):
        assert first.acquire(float(now) * 1.1)
        assert not second.acquire(float(now))


def test_leadership_of_a_dead_coordinator_is_taken_at_once(database: Database) -> None:
    LeaderLease(database, "a:b:1:1").acquire(0.0)
    second = LeaderLease(database, "a:b:2:2", is_dead=lambda holder: holder == "a:b:1:1")

    assert second.acquire(0.1)


def test_only_a_process_that_ran_here_is_provably_dead() -> None:
    me = own_name()
    host, place, pid, start = me.rsplit(":", 3)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()

    assert not is_provably_dead(me)
    assert is_provably_dead(f"{host}:{place}:{child.pid}:1")
    assert is_provably_dead(f"{host}:{place}:{pid}:{int(start) - 1}")
    assert not is_provably_dead(f"{host}:another-boot/1:{child.pid}:1")
    assert not is_provably_dead("nonsense")


def test_zombie_is_dead() -> None:
    host, place, _, _ = own_name().rsplit(":", 3)
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


def sweep(reaper: Reaper, *, seconds: range, before: Callable[[int], None] = lambda _second: None) -> None:
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

    sweep(reaper, seconds=range(15))
    assert state(database, job_id) is JobState.PREPARING

    sweep(reaper, seconds=range(15, 17))
    assert state(database, job_id) is JobState.QUEUED


def test_each_lease_that_is_taken_is_told_of_once_it_is_taken(database: Database) -> None:
    job_id, seen = held_job(database), []
    reaper = Reaper(database, SETTINGS, actor="test", on_revoked=lambda: seen.append(state(database, job_id)))

    sweep(reaper, seconds=range(20))

    assert seen == [JobState.QUEUED]


def test_renewed_lease_is_kept(database: Database) -> None:
    job_id, reaper = held_job(database), Reaper(database, SETTINGS, actor="test")

    sweep(reaper, seconds=range(60), before=lambda second: renew(database) if second % 10 == 0 else None)

    assert state(database, job_id) is JobState.PREPARING


def test_time_without_sweeps_does_not_count(database: Database) -> None:
    job_id, reaper = held_job(database), Reaper(database, SETTINGS, actor="test")

    sweep(reaper, seconds=range(3))
    sweep(reaper, seconds=range(100, 110))

    assert state(database, job_id) is JobState.PREPARING


def test_cause_tells_node_from_supervisor(database: Database) -> None:
    alone, both = held_job(database), ""
    reaper = Reaper(database, SETTINGS, actor="test")
    sweep(reaper, seconds=range(17), before=lambda _second: heartbeat(database))
    assert cause(database, alone) == "SUPERVISOR_LOST"

    with database.write() as session:
        job = make_job(session)
        make_attempt(session, job, session.get_one(Node, "box"), device_indices=(1,))
        both = job.id
    sweep(reaper, seconds=range(17, 35))
    assert cause(database, both) == "NODE_LOST"


def test_unclaimed_attempt_goes_back_without_costing_a_retry(database: Database) -> None:
    job_id, reaper = held_job(database, claimed=False), Reaper(database, SETTINGS, actor="test")

    sweep(reaper, seconds=range(17))

    assert state(database, job_id) is JobState.QUEUED
    with database.read() as session:
        assert session.get_one(Job, job_id).retries_used == 0


def test_silent_node_is_lost_and_a_new_heartbeat_brings_it_back(database: Database) -> None:
    with database.write() as session:
        make_node(session, "box")
    reaper = Reaper(database, SETTINGS, actor="test")

    sweep(reaper, seconds=range(8))
    with database.read() as session:
        assert session.get_one(Node, "box").state == "ready"

    sweep(reaper, seconds=range(8, 10))
    with database.read() as session:
        assert session.get_one(Node, "box").state == "lost"

    assert registry.heartbeat(database, "box") == "ready"
    sweep(reaper, seconds=range(10, 17))
    with database.read() as session:
        assert session.get_one(Node, "box").state == "ready"


# ---- the rest


def test_repeated_revoke_requests_a_cancel_and_nudges_the_node(database: Database) -> None:
    job_id = held_job(database)
    nudged: list[tuple[str, str]] = []

    for _ in range(2):
        revocation.revoke_job(database, job_id, lambda *nudge: nudged.append(nudge))

    assert nudged[0] == (job_id, "box")
    with database.read() as session:
        assert session.get_one(Job, job_id).requested == "cancel"


def never(*nudge: str) -> None:
    pytest.fail(f"nudged: {nudge}")


def test_revoke_of_an_ended_or_unknown_job_changes_nothing(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session, state=JobState.COMPLETED).id

    revocation.revoke_job(database, job_id, never)
    revocation.revoke_job(database, "job-unknown", never)

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
    planner.renew_leadership(database, "me")

    housekeeping.drop_old_replies(database)
    housekeeping.drop_dead_coordinators(database)

    with database.read() as session:
        assert [reply.idempotency_key for reply in session.query(IdempotentReply)] == ["new"]
        assert {beat.name for beat in session.query(ProcessBeat)} == {"coordinator@new", "planner"}
