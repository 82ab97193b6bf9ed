"""`trainyard exec`: real commands through a real gateway, with their streams, exit codes and ends."""

import asyncio
import fcntl
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from app.cli.client.interactive.command_session import Input, run_command
from app.cli.client.interactive.session_socket import SessionTicket
from app.database.engine import Database
from app.models import InteractiveSession
from tests.systems.reachable_jobs import SECONDS, ReachableJob, reachable_job
from tests.systems.running_up import wait_until


@pytest.fixture
def job(database: Database, tmp_path: Path) -> Iterator[ReachableJob]:
    with reachable_job(database, tmp_path) as job:
        yield job


def test_streams_stay_apart_and_the_exit_code_is_that_of_the_command(job: ReachableJob) -> None:
    done = job.run("exec", job.id, "--", "sh", "-c", "echo out; echo err >&2; exit 3")

    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_words_of_a_command_arrive_as_they_are(job: ReachableJob) -> None:
    done = job.run("exec", job.id, "--", "printf", "%s|", "a b", "--help", "-t", "", "ü$HOME")

    assert done.stdout.decode() == "a b|--help|-t||ü$HOME|"


@pytest.mark.long
def test_input_is_handed_on_to_its_end_when_it_is_asked_for(job: ReachableJob) -> None:
    data = bytes(range(256)) * 8192
    handed_on = job.run("exec", "-i", job.id, "--", "cat", data=data)
    kept = job.run("exec", job.id, "--", "cat", data=data)

    assert handed_on.stdout == data
    assert (kept.returncode, kept.stdout) == (0, b"")


def test_a_file_can_be_the_input(job: ReachableJob, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "file").open("rb") as file:
        process = job.start("exec", "-i", job.id, "--", "wc", "-c", stdin=file, stdout=subprocess.PIPE)
        assert int(process.communicate(timeout=20)[0]) == 100_000


def test_a_signal_that_ended_the_command_is_its_exit_code(job: ReachableJob) -> None:
    assert job.run("exec", job.id, "--", "sh", "-c", "kill -9 $$").returncode == 137


@pytest.mark.long
def test_a_command_that_ends_at_once_loses_neither_output_nor_exit_code(job: ReachableJob) -> None:
    """Its session may have ended before the end of the input was sent."""
    for code in range(60):
        ends = Ends()
        assert (ran(job, ends, "sh", "-c", f"echo x; exit {code}"), ends.written) == (code, b"x\n")


def test_what_a_command_has_written_is_read_after_the_end_of_its_session(job: ReachableJob) -> None:
    ends = SlowEnds()

    assert (ran(job, ends, "sh", "-c", "echo x; exit 7"), ends.written) == (7, b"x\n")
    assert ends.refused.is_set()


@pytest.mark.long
def test_exec_itself_has_the_output_and_exit_code_of_quick_commands(job: ReachableJob) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda _: job.run("exec", job.id, "--", "sh", "-c", "echo x; kill -9 $$"), range(6))
        assert {(done.returncode, done.stdout, done.stderr) for done in found} == {(137, b"x\n", b"")}


def test_what_is_no_program_says_so(job: ReachableJob) -> None:
    done = job.run("exec", job.id, "--", "no-such-program")

    assert done.returncode == 127
    assert b"no-such-program" in done.stderr


@pytest.mark.long
def test_errors_of_ours_have_an_exit_code_of_their_own(job: ReachableJob) -> None:
    unknown = job.run("exec", "no-such-job", "--", "true")
    rank = job.run("exec", job.id, "--rank", "9", "--", "true")
    nothing = job.run("exec", job.id)
    role = job.run("exec", job.id, "--role", "trainer", "--index", "1", "--rank", "0", "--", "true")
    index = job.run("exec", job.id, "--index", "1", "--", "true")

    assert (unknown.returncode, rank.returncode, nothing.returncode) == (255, 255, 2)
    assert (role.returncode, index.returncode) == (255, 2)
    assert b"the job has no roles; omit role" in role.stderr
    assert b"give --role" in index.stderr
    assert b"no job no-such-job" in unknown.stderr
    assert b"rank is 9" in rank.stderr
    assert b"Put -- before the command" in nothing.stderr


def test_options_of_the_command_go_behind_two_hyphens(job: ReachableJob) -> None:
    done = job.run("exec", job.id, "ls", "-l")

    assert done.returncode == 2
    assert b"No such option '-l'" in done.stderr
    assert b"Put -- before the command: trainyard exec JOB -- ls -l" in done.stderr


def test_a_reader_that_has_enough_ends_the_command(job: ReachableJob) -> None:
    flood = job.start("exec", job.id, "--", "yes", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert flood.stdout is not None
    with flood.stdout:
        assert flood.stdout.read(4) == b"y\ny\n"
    flood.wait(timeout=20)

    (session,) = _sessions(job)
    job.site.ended(session)


@pytest.mark.long
def test_output_that_nobody_reads_is_not_kept_in_memory(job: ReachableJob) -> None:
    """The command waits instead; all of it arrives once it is read."""
    size = 200_000_000
    flood = job.start("exec", job.id, "--", "head", "-c", str(size), "/dev/zero", stdout=subprocess.PIPE)
    assert flood.stdout is not None
    wait_until(lambda: _unread(flood) >= 65536)  # the pipe is full
    client, most, count = psutil.Process(flood.pid), 0, 0
    while data := flood.stdout.read(1_000_000):
        count += len(data)
        most = max(most, client.memory_info().rss)
    flood.stdout.close()

    assert (count, flood.wait(timeout=20)) == (size, 0)
    assert most < 100_000_000


def test_ctrl_c_ends_the_command_in_the_job(job: ReachableJob, tmp_path: Path) -> None:
    command = f"echo started; trap '' INT; sleep 1000; echo {tmp_path}"
    process = job.start("exec", job.id, "--", "sh", "-c", command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=20) == 130
    process.stdout.close()
    (session,) = _sessions(job)
    assert job.site.ended(session).end_reason == "the client has closed the connection"


def test_the_end_of_the_job_is_told(job: ReachableJob) -> None:
    process = job.start(
        "exec", job.id, "--", "sh", "-c", "echo started; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    job.site.set_job(job.id, status="CANCELLED")
    job.sandbox.kill()

    assert process.wait(timeout=20) == 255
    assert process.stderr is not None
    assert b"CANCELLED" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


class Ends:
    """The ends of a command that gets no input."""

    def __init__(self) -> None:
        self.written = b""

    async def feed(self, to: Input) -> None:
        await to.end()

    async def write(self, data: bytes, *, is_error: bool) -> None:
        assert not is_error
        self.written += data


class SlowEnds(Ends):
    """Writes output only when the session takes no input any more."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = asyncio.Event()

    async def feed(self, to: Input) -> None:
        try:
            while True:
                await to.write(b"more")
                await asyncio.sleep(0)  # the socket's messages are read in between
        finally:
            self.refused.set()

    async def write(self, data: bytes, *, is_error: bool) -> None:
        await self.refused.wait()
        await super().write(data, is_error=is_error)


def ran(job: ReachableJob, ends: Ends, *command: str) -> int | None:
    """The exit code of the command."""
    session_id, ticket = job.sandbox.session(*command)
    opened = SessionTicket(session_id=session_id, url=job.site.address(session_id), ticket=ticket)
    return asyncio.run(asyncio.wait_for(run_command(opened, ends), SECONDS)).exit_code


def _sessions(job: ReachableJob) -> list[str]:
    with job.site.db.read() as session:
        return list(session.scalars(select(InteractiveSession.id)))


def _unread(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return int(struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, b"0000"))[0])
