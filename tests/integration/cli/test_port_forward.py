"""`trainyard port-forward`: connections to this machine's ports end in the job."""

import hashlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.echo_ports import asked, echoing
from tests.systems.reachable_jobs import ReachableJob, reachable_job
from tests.systems.servers import free_port


@pytest.fixture
def job(database: Database, tmp_path: Path) -> Iterator[ReachableJob]:
    with reachable_job(database, tmp_path) as job:
        yield job


@contextmanager
def forwarding(job: ReachableJob, *ports: str) -> Iterator[tuple["subprocess.Popen[bytes]", list[int]]]:
    """The command, and the ports where it listens."""
    process = job.start("port-forward", job.id, *ports, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        lines = [process.stdout.readline() for _ in ports]
        yield process, [int(line.decode().split()[0].rpartition(":")[2]) for line in lines]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.long
def test_bytes_and_their_end_travel_both_ways(job: ReachableJob) -> None:
    data = hashlib.sha256(b"").digest() * 300_000
    with echoing() as port, forwarding(job, f":{port}") as (process, (here,)):
        assert asked(here, data) == data + b"end"
        assert asked(here, b"") == b"end"  # each connection is a session of its own
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


@pytest.mark.long
def test_several_ports_and_connections_at_once(job: ReachableJob) -> None:
    with echoing() as one, echoing() as other, forwarding(job, f":{one}", f"{free_port()}:{other}") as (_, here):
        answers: list[bytes] = []
        threads = [
            threading.Thread(target=lambda n=number: answers.append(asked(here[n % 2], b"%d" % n)))
            for number in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(answers) == [b"%dend" % number for number in range(8)]


@pytest.mark.long
def test_a_port_without_a_listener_is_named_and_others_still_work(job: ReachableJob) -> None:
    closed = free_port()
    with echoing() as port, forwarding(job, f":{closed}", f":{port}") as (process, (refused, here)):
        assert asked(refused, b"") == b""
        assert process.stderr is not None
        assert f"port {closed}: nothing listens on port {closed}" in process.stderr.readline().decode()
        assert asked(here, b"x") == b"xend"


def test_it_ends_with_the_job(job: ReachableJob) -> None:
    with echoing() as port, forwarding(job, f":{port}") as (process, (here,)):
        job.site.set_job(job.id, status="CANCELLED")
        assert asked(here, b"x") == b""
        assert process.wait(timeout=20) == 1
        assert process.stderr is not None
        assert b"CANCELLED" in process.stderr.read()


@pytest.mark.long
def test_ports_that_are_none_are_refused(job: ReachableJob) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        here = taken.getsockname()[1]
        in_use = job.run("port-forward", job.id, f"{here}:80")
    for wrong in ("0", "80:0", "70000", "1:2:3", "80:BIG", "-1:80"):
        assert job.run("port-forward", job.id, "--", wrong).returncode == 2, wrong
    unknown = job.run("port-forward", job.id, "web")

    assert (in_use.returncode, unknown.returncode) == (1, 1)
    assert f"can't listen on 127.0.0.1:{here}".encode() in in_use.stderr
    assert b"no port named 'web'; it has: none" in unknown.stderr
