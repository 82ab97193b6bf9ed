"""Redis, PostgreSQL and the network between them and us."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.faults.cluster import LONG_SECONDS, SHORT_SECONDS, Cluster, is_alive
from tests.systems.servers import PostgresServer
from tests.systems.system import wait_for

# ---- Redis


def kill_redis(cluster: Cluster, job_id: str) -> None:
    cluster.redis.stop(signal.SIGKILL)
    cluster.redis.start()


def take_redis_away(cluster: Cluster, job_id: str) -> None:
    """Meanwhile another job is taken, trained and finished, and one is cancelled."""
    cluster.redis.stop(signal.SIGKILL)
    second, third = cluster.train(steps=20), cluster.train(steps=5000)
    cluster.wait_until_witnessed(third, 3)
    assert cluster.call("POST", f"/v1/jobs/{third}/cancel")[0] in (200, 202)
    cluster.wait_for_status(third, "CANCELLED", seconds=20)
    cluster.wait_for_end(second)
    cluster.redis.start()


def empty_redis(cluster: Cluster, job_id: str) -> None:
    second = cluster.train(steps=20)
    with cluster.redis.client() as client:
        client.flushall()
    cluster.wait_for_end(second)


def fill_redis(cluster: Cluster, job_id: str) -> None:
    with cluster.redis.client() as client:
        client.config_set("maxmemory", "1")
        cluster.wait_for_end(cluster.train(steps=20))
        client.config_set("maxmemory", "0")


def make_redis_an_orphaned_replica(cluster: Cluster, job_id: str) -> None:
    """Redis refuses writes and drops its data: its primary does not exist."""
    with cluster.redis.client() as client:
        client.slaveof("127.0.0.1", "1")
        cluster.wait_for_end(cluster.train(steps=20))
        client.slaveof()


def freeze_redis(cluster: Cluster, job_id: str) -> None:
    with _stopped(cluster.redis.pid):
        cluster.wait_for_end(cluster.train(steps=20))


def ring_a_hundred_times(cluster: Cluster, job_id: str) -> None:
    """For this attempt, for one long over, and for jobs that there never were."""
    for number in range(100):
        arguments = (job_id, 1) if number % 3 else (f"job-{number:036d}", number)
        cluster.ring_run(*arguments, node=cluster.home(job_id))


# ---- the network


def cut_the_database_for_a_moment(cluster: Cluster, job_id: str) -> None:
    line = cluster.line(f"node-{cluster.home(job_id)}", "database")
    line.down()
    time.sleep(SHORT_SECONDS)
    line.heal()


def cut_a_node_off(cluster: Cluster, job_id: str) -> None:
    """All packets of the node are dropped silently. It fences itself, and another node continues the job."""
    home = f"node-{cluster.home(job_id)}"
    old = cluster.processes_of(job_id)
    for server in ("database", "redis"):
        cluster.line(home, server).partition()
    cluster.wait_for_another_attempt(job_id, seconds=60)
    assert not any(map(is_alive, old)), "the attempt that was cut off is gone"
    for server in ("database", "redis"):
        cluster.line(home, server).heal()
        cluster.line(home, server).reset()


def half_open_broker(cluster: Cluster, job_id: str) -> None:
    """Every existing connection is dead, and neither side notices."""
    for line in cluster.lines("redis"):
        line.freeze()
    cluster.wait_for_end(cluster.train(steps=20))


def reset_all_connections(cluster: Cluster, job_id: str) -> None:
    for _ in range(10):
        for server in ("redis", "database"):
            for line in cluster.lines(server):
                line.reset()
        time.sleep(0.3)


def slow_network(cluster: Cluster, job_id: str) -> None:
    lines = [*cluster.lines("redis"), *cluster.lines("database")]
    for line in lines:
        line.delay(0.02)
    cluster.wait_for_end(cluster.train(steps=20), seconds=90)
    for line in lines:
        line.heal()


def lose_answers(cluster: Cluster, job_id: str) -> None:
    """Requests arrive and are executed, their answers break off: the client cannot know whether a commit succeeded."""
    home = cluster.line(f"node-{cluster.home(job_id)}", "database")
    for reply_bytes in (0, 40, 400, 1500):
        home.cut_after(reply_bytes)
        time.sleep(0.4)
    home.heal()


# ---- PostgreSQL


def stop_postgres_for_a_moment(cluster: Cluster, job_id: str) -> None:
    server = _postgres(cluster)
    server.stop(signal.SIGQUIT)
    began = time.monotonic()
    status, body = cluster.call("GET", f"/v1/jobs/{job_id}")
    assert (status, time.monotonic() - began < 4) == (503, True), (status, body)
    server.start()


def stop_postgres_for_long(cluster: Cluster, job_id: str) -> None:
    old = cluster.processes_of(job_id)
    server = _postgres(cluster)
    server.stop(signal.SIGQUIT)
    wait_for(lambda: not any(map(is_alive, old)), seconds=LONG_SECONDS + 5, what="the fence fell")
    server.start()


def end_all_database_sessions(cluster: Cluster, job_id: str) -> None:
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    for _ in range(6):
        _postgres(cluster).execute(f"SELECT pg_terminate_backend(pid) {others}")
        time.sleep(0.3)


def make_the_database_read_only(cluster: Cluster, job_id: str) -> None:
    """As a standby is before it takes over."""
    server = _postgres(cluster)
    _set_read_only(server, "on")
    time.sleep(SHORT_SECONDS)
    status, body = cluster.call("POST", "/v1/jobs", cluster.witnessed_job())
    assert status == 503, body
    assert cluster.call("GET", f"/v1/jobs/{job_id}")[0] == 200
    _set_read_only(server, "off")


def _set_read_only(server: PostgresServer, value: str) -> None:
    server.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    server.execute("SELECT pg_reload_conf()")


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    process = psutil.Process(pid)
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def _postgres(cluster: Cluster) -> PostgresServer:
    assert cluster.postgres is not None, "this fault is one of PostgreSQL's"
    return cluster.postgres
