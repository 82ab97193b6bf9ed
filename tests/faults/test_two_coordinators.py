"""Two coordinators, killed and stopped at random while more jobs arrive than fit: one of them plans."""

import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from app.database.engine import Database, make_engine
from app.models import ProcessBeat
from app.services.scheduling.leader_election import STANDSTILL_SECONDS
from app.services.scheduling.planner import PLANNER
from tests.faults.checking import assert_sound, summary
from tests.faults.cluster import SHORT, Cluster
from tests.faults.history import collect
from tests.faults.seeds import SEED
from tests.systems.system import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

COORDINATORS = ("coordinator", "second")
ROUNDS, JOBS = 6, 4
# No timeout that a busy machine could exceed: only faults of coordinators are tested here.
PATIENT = {
    **SHORT,
    "TRAINYARD_LEASE_TTL_SECONDS": "60",
    "TRAINYARD_LEASE_FENCE_SECONDS": "45",
    "TRAINYARD_LEASE_RENEW_SECONDS": "2",
    "TRAINYARD_NODE_LOST_SECONDS": "45",
    "TRAINYARD_WATCH_STEP_SECONDS": "60",
}


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return PATIENT


def test_one_of_two_plans_whatever_happens_to_them(cluster: Cluster) -> None:
    rng = random.Random(f"{SEED}/coordinators")
    cluster.start_coordinator("second")
    with reading(cluster) as db:
        for number in range(ROUNDS):
            jobs = [cluster.train(steps=rng.randint(20, 60), ranks=rng.randint(1, 3)) for _ in range(JOBS)]
            time.sleep(rng.random())
            planner = wait_for(lambda: holder(db, cluster), seconds=60, what="one of them plans")
            # Who plans, most of the time: the other one only waits for that.
            struck = rng.choice([[planner], [planner], list(COORDINATORS), [rng.choice(COORDINATORS)]])
            strike = rng.choice([killed, stopped])
            strike(cluster, struck, rng.random()) if number else replaced(cluster, db, planner)
            cluster.wait_for_end(jobs[0], seconds=120)

    assert_sound(cluster, seconds=150)
    disturbed = [one for one in collect(cluster).jobs.values() if (one.job.status, one.job.attempt) != ("COMPLETED", 1)]
    assert not disturbed, "\n".join(map(summary, disturbed))


def replaced(cluster: Cluster, db: Database, planner: str) -> None:
    """Stop the planning coordinator until the other one plans, then continue it."""
    other = next(name for name in COORDINATORS if name != planner)
    cluster.signal(planner, signal.SIGSTOP)
    wait_for(lambda: holder(db, cluster) == other, seconds=60, what=f"{other} plans for it")
    cluster.signal(planner, signal.SIGCONT)


def killed(cluster: Cluster, names: list[str], seconds: float) -> None:
    """Kill them one after the other, and restart them after that long."""
    for name in names:
        cluster.kill(name)
    time.sleep(seconds)
    for name in names:
        cluster.restart(name)


def stopped(cluster: Cluster, names: list[str], seconds: float) -> None:
    """Stop them at an arbitrary point, for long enough to lose the leadership; then continue each of them."""
    for name in names:
        cluster.signal(name, signal.SIGSTOP)
    time.sleep(STANDSTILL_SECONDS + 1 + seconds)
    for name in names:
        cluster.signal(name, signal.SIGCONT)


def holder(db: Database, cluster: Cluster) -> str | None:
    """Which of the two plans, if one does; the identity of a process ends in its pid and when it was started."""
    with db.read() as session:
        row = session.get_one(ProcessBeat, PLANNER)
        pid = int(row.holder.rsplit(":", 2)[1])
    return next((name for name in COORDINATORS if cluster.pid(name) == pid), None)


@contextmanager
def reading(cluster: Cluster) -> Iterator[Database]:
    db = Database().bind(make_engine(cluster.database_url))
    try:
        yield db
    finally:
        db.close()
