"""Real servers for tests: Redis and PostgreSQL on free loopback ports, each in a folder of its own, ended by pid."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import redis

START_SECONDS = 20.0
STOP_SECONDS = 10.0


class ServerError(Exception):
    """A server of the tests did not start; the message holds what it said."""


def free_port() -> int:
    """A port that is unused now; a caller that loses the race to bind it must ask again.

    Below the ephemeral ports, which the kernel may give to any process at any moment.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class RedisServer:
    """A Redis or Valkey server with a password; ``stop`` and ``start`` keep port and password, not the data."""

    def __init__(self, *, acl_file: Path | None = None, user: str = "default", password: str = "") -> None:
        """With an ACL file the ``user``, who is to be in it, administers the server."""
        self.password = password or secrets.token_hex(8)
        self.port = 0
        self._acl_file, self._user = acl_file, user
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="trainyard-redis-"))

    @property
    def url(self) -> str:
        user = "" if self._user == "default" else self._user
        return f"redis://{user}:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def client(self) -> "redis.Redis":
        return redis.Redis(
            host="127.0.0.1", port=self.port, username=self._user, password=self.password, decode_responses=True
        )

    def start(self) -> None:
        self._process, self.port = _start_on_free_port(self._command, self._answers, self._folder, self.port)

    def stop(self, signal_number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            _end(self._process, signal_number)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self, port: int) -> list[str]:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise ServerError("no redis-server or valkey-server on the PATH: scripts/install-system-packages")
        # The password goes by file: command lines are visible to everybody on the machine.
        config = self._folder / "server.conf"
        access = f"aclfile {self._acl_file}" if self._acl_file else f"requirepass {self.password}"
        config.write_text(f'bind 127.0.0.1\nport {port}\n{access}\ndir "{self._folder}"\nsave ""\nappendonly no\n')
        return [program, str(config)]

    def _answers(self, port: int) -> bool:
        with contextlib.closing(
            redis.Redis.from_url(f"redis://{self._user}:{self.password}@127.0.0.1:{port}/0")
        ) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


class PostgresServer:
    """Debian's PostgreSQL without its safety on disk; run as user ``postgres`` by root, because it refuses root.

    ``commits_wait``: what it has confirmed survives its own death, though not the machine's.
    """

    def __init__(self, *, commits_wait: bool = False) -> None:
        self._commits = "on" if commits_wait else "off"
        self.password = secrets.token_hex(8)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: psycopg.Connection | None = None
        self._user = "postgres" if os.getuid() == 0 else None
        # Not under pytest's own temporary folder: only root may enter that.
        self._folder = Path(tempfile.mkdtemp(prefix="trainyard-postgres-", dir=_postgres_home()))

    def url(self, database: str) -> str:
        """A SQLAlchemy URL."""
        return f"postgresql+psycopg://trainyard:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def execute(self, statement: str) -> None:
        """Run one administrative statement, outside any transaction."""
        try:
            self._administrator().execute(statement.encode())
        except psycopg.OperationalError:
            if self._connection is not None and not self._connection.closed:
                raise
            self._administrator().execute(statement.encode())  # the server was started anew since the last one

    def clone(self, template: str, name: str) -> None:
        """Copy a database that has no connections."""
        # From PostgreSQL 15 on copying by the log is the default, which takes several times as long here.
        by_files = " STRATEGY FILE_COPY" if self._administrator().info.server_version >= 150_000 else ""
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}{by_files}")

    def connect(self, database: str) -> psycopg.Connection:
        """As the administrator, outside any transaction."""
        return psycopg.connect(self._dsn(self.port, database), autocommit=True)

    def start(self) -> None:
        data = self._folder / "data"
        if not data.exists():
            self._initdb(data)
        self._process, self.port = _start_on_free_port(
            self._command, self._answers, self._folder, self.port, user=self._user
        )

    def stop(self, signal_number: int = signal.SIGQUIT) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            _end(self._process, signal_number)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _administrator(self) -> psycopg.Connection:
        # Kept: a connection costs the server as much as a clone.
        if self._connection is None or self._connection.closed:
            self._connection = self.connect("postgres")
        return self._connection

    def _initdb(self, data: Path) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self.password)
        if self._user:
            account = pwd.getpwnam(self._user)
            for path in (self._folder, password_file):
                os.chown(path, account.pw_uid, account.pw_gid)
        subprocess.run(
            [
                _postgres_program("initdb"),
                "--pgdata",
                str(data),
                "--username",
                "trainyard",
                "--no-sync",
                "--pwfile",
                str(password_file),
                # SCRAM would cost every connection 8 ms of processor time, half of it the client's.
                "--auth",
                "md5",
                "--encoding",
                "UTF8",
                "--locale",
                "C",
            ],
            user=self._user,
            cwd=self._folder,
            check=True,
            capture_output=True,
        )

    def _command(self, port: int) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "fsync": "off",
            "synchronous_commit": self._commits,
            "full_page_writes": "off",
            # Tests that need a VACUUM run it: autovacuum's snapshots would keep theirs from marking rows visible.
            "autovacuum": "off",
        }
        command = [_postgres_program("postgres"), "-D", str(self._folder / "data"), "-p", str(port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _answers(self, port: int) -> bool:
        try:
            psycopg.connect(self._dsn(port)).close()
        except psycopg.OperationalError:
            return False
        return True

    def _dsn(self, port: int, database: str = "postgres") -> str:
        user = f"user=trainyard password={self.password}"
        return f"host=127.0.0.1 port={port} {user} dbname={database} connect_timeout=5"


def _postgres_home() -> str:
    """In memory where there is room: a clone is a thousand small files, 25 ms there and up to 300 ms on a disk."""
    memory = Path("/dev/shm")
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3
    return str(memory) if has_room else "/tmp"


def _start_on_free_port(
    command: Callable[[int], list[str]],
    answers: Callable[[int], bool],
    folder: Path,
    wanted_port: int,
    *,
    user: str | None = None,
) -> tuple[subprocess.Popen[bytes], int]:
    log_path = folder / "log"
    for _ in range(5):
        port = wanted_port or free_port()
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*_die_with_tests(), *command(port)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                user=user,
            )
        if _wait(process, partial(answers, port)):
            return process, port
        _end(process, signal.SIGKILL)
    raise ServerError(log_path.read_text(errors="replace")[-2000:])


def _die_with_tests() -> list[str]:
    # So that kill -9 of pytest leaves no server behind; SIGINT is what PostgreSQL takes for "fast shutdown".
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "INT", "--"] if setpriv else []


def _wait(process: subprocess.Popen[bytes], answers: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if answers():
            return process.poll() is None
        time.sleep(0.02)
    return False


def _end(process: subprocess.Popen[bytes], signal_number: int) -> None:
    process.send_signal(signal_number)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _postgres_program(name: str) -> str:
    # Debian keeps them off the PATH, one folder per major version; the newest one serves.
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for folder in folders:
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise ServerError(f"no {name}: scripts/install-system-packages")
    return found
