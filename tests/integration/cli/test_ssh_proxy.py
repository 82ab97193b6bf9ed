"""`trainyard ssh-proxy` as the ProxyCommand of OpenSSH's own ssh, scp and sftp."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.echo_ports import asked, echoing
from tests.systems.reachable_jobs import SECONDS, ReachableJob, reachable_job
from tests.systems.running_up import wait_until
from tests.systems.servers import free_port

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")


class SshUser:
    """A user whose ~/.ssh/config has the lines of docs/how-to/reach-a-running-job.md."""

    def __init__(self, job: ReachableJob, folder: Path) -> None:
        self.job, self.folder = job, folder
        self.folder.mkdir()
        self.config = folder / "config"
        self.config.write_text(
            "Host *.trainyard\n"
            f"    ProxyCommand {sys.executable} -m app.cli.main ssh-proxy %n\n"
            "    HostKeyAlias trainyard\n"
            "    StrictHostKeyChecking accept-new\n"
            f"    UserKnownHostsFile {folder}/known_hosts\n"
        )
        self.host = f"{job.id}.trainyard"

    def run(self, program: str, *arguments: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.command(program, *arguments),
            env=self.job.environment,
            input=data,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )

    def command(self, program: str, *arguments: str) -> list[str]:
        return [program, "-F", str(self.config), *arguments]


@pytest.fixture
def user(database: Database, tmp_path: Path) -> Iterator[SshUser]:
    with reachable_job(database, tmp_path) as job:
        yield SshUser(job, tmp_path / "user")


def test_a_command_has_its_streams_and_its_exit_code(user: SshUser) -> None:
    done = user.run("ssh", user.host, 'read word; echo "$word $((6 * 7))"; echo err >&2; exit 9', data=b"hello\n")

    assert (done.returncode, done.stdout) == (9, b"hello 42\n")
    assert done.stderr.endswith(b"err\n")


@pytest.mark.long
def test_the_server_is_known_the_second_time(user: SshUser) -> None:
    assert b"added" in user.run("ssh", user.host, "true").stderr
    again = user.run("ssh", "-o", "StrictHostKeyChecking=yes", user.host, "true")

    assert (again.returncode, again.stderr) == (0, b"")
    (key,) = user.job.site.folder.glob("cache/trainyard/ssh_host_key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_shell_beside_a_named_rank_reads_a_script_without_a_terminal(user: SshUser) -> None:
    done = user.run("ssh", "-T", f"rank-0.{user.host}", data=b"echo from a script\nexit 5\n")

    assert (done.returncode, done.stdout) == (5, b"from a script\n")


def test_a_terminal_has_its_size(user: SshUser) -> None:
    terminal = user.job.in_terminal("--help")  # for its size and its end
    terminal.ended()
    done = user.run("ssh", "-tt", user.host, "stty size; test -t 1 && echo terminal")

    assert b"terminal" in done.stdout
    terminal.close()


@pytest.mark.long
def test_files_are_copied_both_ways(user: SshUser, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    (folder / "inner").mkdir(parents=True)
    data = os.urandom(3_000_000)
    (folder / "data").write_bytes(data)
    (folder / "inner" / "ü").write_text("text")
    (folder / "data").chmod(0o640)
    there = tmp_path / "there"

    sent = user.run("scp", "-rp", str(folder), f"{user.host}:{there}")
    assert sent.returncode == 0, sent.stderr
    assert (there / "data").read_bytes() == data
    assert stat.S_IMODE((there / "data").stat().st_mode) == 0o640
    assert (there / "inner" / "ü").read_text() == "text"

    fetched = user.run("scp", f"{user.host}:{there}/data", str(tmp_path / "fetched"))
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "fetched").read_bytes() == data
    missing = user.run("scp", f"{user.host}:{there}/none", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert b"No such file" in missing.stderr


def test_sftp_does_what_people_type(user: SshUser, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    there = tmp_path / "there"
    steps = (
        f"mkdir {there}\nput {tmp_path}/file {there}/one\nrename {there}/one {there}/two\nchmod 600 {there}/two\n"
        f"symlink two {there}/link\nls -l {there}\nget {there}/link {tmp_path}/got\nrm {there}/link\nrm {there}/two\n"
        f"rmdir {there}\n"
    )
    done = user.run("sftp", "-b", "-", user.host, data=steps.encode())

    assert done.returncode == 0, done.stderr
    assert b"-rw-------" in done.stdout
    assert (tmp_path / "got").read_text() == "content"
    assert not there.exists()


@pytest.mark.long
def test_ports_of_the_job_are_forwarded_and_no_others(user: SshUser) -> None:
    here, elsewhere = free_port(), free_port()
    with echoing() as port:
        forwards = ["-L", f"{here}:localhost:{port}", "-L", f"{elsewhere}:192.0.2.1:80"]
        process = subprocess.Popen(
            user.command("ssh", "-o", "ExitOnForwardFailure=yes", *forwards, user.host, "echo ready; read word"),
            env=user.job.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert asked(here, b"x" * 100_000) == b"x" * 100_000 + b"end"
        with suppress(ConnectionError):
            assert asked(elsewhere, b"x") == b""
        _, said = process.communicate(b"word\n", timeout=SECONDS)
    assert b"only ports of the job itself" in said


@pytest.mark.long
def test_what_ssh_offers_beyond_the_job_is_refused(user: SshUser) -> None:
    back = user.run("ssh", "-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:9", user.host, "true")
    subsystem = user.run("ssh", "-s", user.host, "netconf")
    unknown = user.run("ssh", "no-such-job.trainyard", "true")
    no_role = user.run("ssh", f"trainer-0.{user.host}", "true")

    assert (back.returncode, subsystem.returncode, unknown.returncode, no_role.returncode) == (255, 255, 255, 255)
    assert b"subsystem request failed" in subsystem.stderr
    assert b"no job no-such-job" in unknown.stderr
    assert b"the job has no roles" in no_role.stderr


def test_the_end_of_ssh_ends_its_commands_in_the_job(user: SshUser, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    process = subprocess.Popen(
        user.command("ssh", user.host, f"echo $$ > {pid_file}; echo started; exec sleep 1000"),
        env=user.job.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    process.kill()
    process.communicate()

    pid = int(pid_file.read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_it_is_started_by_ssh_alone(user: SshUser) -> None:
    terminal = user.job.in_terminal("ssh-proxy", user.job.id)
    try:
        assert terminal.ended() == 2
        assert b"ProxyCommand trainyard ssh-proxy" in terminal.heard
    finally:
        terminal.close()
