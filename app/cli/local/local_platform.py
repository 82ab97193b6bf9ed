"""All processes of one machine: started together, supervised, drained and stopped."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import click

from app.cli.local import embedded_redis, preloading, signals
from app.cli.local.command_lines import (
    COORDINATOR,
    LATE_APP,
    NODE,
    api_command,
    child_environment,
    flower_command,
    foreign_environment,
    gateway_command,
    tensorboard_command,
    worker_command,
)
from app.cli.local.forked_process import can_fork
from app.cli.local.process_group import ChildSpec, LocalProcesses
from app.cli.local.readiness import StartupReadiness, reachable, seconds_since_start
from app.host.privacy import hide_from_same_user
from app.services.operations.data_dir import replace_secret, url_file, write_roots, write_sandbox
from config.node import NodeSettings
from config.settings import Settings

STOP_SECONDS = 8.0
DRAIN_SECONDS = 30.0
READY_POLL_SECONDS = 0.02
FORGET_SECONDS = 3.0
DASHBOARD_NICENESS = 10
# Of answers that are under way when everything stops: the nodes have already ended their replicas.
GATEWAY_DRAIN_SECONDS = 3
PORTS_HOST = "jobs.localhost"


class NotPrepared(Exception):
    """The database is unavailable or could not be migrated."""


class Drain(Protocol):
    """What ``NodesDrain`` does, whose module loads SQLAlchemy and is therefore imported late."""

    def begin(self) -> int: ...

    def is_busy(self) -> bool: ...

    def undo(self, *, stopped: bool = False) -> None: ...

    def forget_simulated(self, *, ended: bool = False) -> bool: ...


class LocalPlatform:
    """Owns the child processes; ``run`` returns when all have ended. ``nodes`` configures the node workers."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        *,
        nodes: Sequence[NodeSettings],
        with_flower: bool,
        tensorboard: socket.socket | None,
        gateway: socket.socket,
    ) -> None:
        self._listener, self._tensorboard, self._gateway = listener, tensorboard, gateway
        host, port = listener.getsockname()[:2]
        self._settings = replace(settings, api=replace(settings.api, host=host, port=port))
        # Its own, whatever the environment says: it serves this installation's keys and services.
        self._settings = replace(self._settings, gateway=replace(settings.gateway, url=_url_of(gateway)))
        if not settings.gateway.sessions_url:
            reached = replace(self._settings.gateway, sessions_url=_url_of(gateway))
            self._settings = replace(self._settings, gateway=reached)
        if not settings.gateway.ports_url:
            self._serve_ports()
        if not settings.web.url:
            self._settings = replace(self._settings, web=replace(settings.web, url=_url_of(listener)))
        if tensorboard is not None and not settings.tensorboard.url:
            own = replace(settings.tensorboard, url=_url_of(tensorboard))
            self._settings = replace(self._settings, tensorboard=own)
        self._nodes = nodes
        self._with_flower = with_flower
        self._group = LocalProcesses(pid_dir=self._dir / "run", log_dir=self._dir / "log", say=_print)
        self._readiness = StartupReadiness(host, port, nodes=self._node_names, key_file=settings.admin_key_file)

    def _serve_ports(self) -> None:
        """Browsers reach this machine by any name below `localhost`, which is not the dashboard's host."""
        own = f"http://{PORTS_HOST}:{self._gateway.getsockname()[1]}"
        self._settings = replace(self._settings, gateway=replace(self._settings.gateway, ports_url=own))

    def run(self) -> None:
        """Run all processes until a stop signal. Raises NoRedisProgram and NotPrepared."""
        hide_from_same_user()
        try:
            self._write_connection_files()
            self._start_redis()
            self._start_others()
            drain = self._prepare_database()
            self._print_addresses()
            self._supervise(drain)
            self._drain(drain)
            self._stop()
            drain.undo(stopped=True)
            drain.forget_simulated(ended=True)
            _print("Stopped.")
        finally:
            self._stop()

    @property
    def _dir(self) -> Path:
        return self._settings.data.dir

    @property
    def _node_names(self) -> list[str]:
        return [node.name for node in self._nodes]

    def _write_connection_files(self) -> None:
        """Write settings of this environment to files, where processes started alone find them."""
        write_roots(self._settings)
        # Long before the API answers: commands that are called meanwhile wait in the queue of its socket.
        replace_secret(url_file(self._settings), self._readiness.url)
        path = self._settings.database_url_file
        if os.environ.get("TRAINYARD_DATABASE_URL"):
            replace_secret(path, self._settings.database.url)
        elif path.exists():
            before = urlsplit(path.read_text().strip())
            path.unlink()
            _print(
                f"Database: SQLite in {self._dir}, because TRAINYARD_DATABASE_URL is not set; the last start used "
                f"{before.scheme.partition('+')[0]} at {before.hostname or ''}{before.path}"
            )

    def _start_redis(self) -> None:
        url_path = self._settings.broker_url_file
        if os.environ.get("TRAINYARD_BROKER_URL"):
            replace_secret(url_path, self._settings.broker.url)
            return
        server = embedded_redis.choose(self._dir, url_path)
        server.write_configuration()
        replace_secret(url_path, server.url)
        spec = self._spec("redis", server.command)
        bare = replace(spec, environment=foreign_environment(os.environ), forks=False)
        if (aside := server.start(self._group, bare)) is not None:
            _print(f"redis could not read its data; moved it to {aside} (it holds only wake-up messages)")

    def _start_others(self) -> None:
        # In the order in which they become ready, which is determined by what each has yet to import; the others share
        # what is imported here meanwhile.
        if forks := can_fork():
            preloading.leave_script_directory()
            preloading.preload(preloading.CORE)
        fd = self._listener.fileno()
        command = api_command(self._settings, bind=f"fd://{fd}", application=LATE_APP)
        self._group.start(replace(self._spec("api", command), pass_fds=(fd,)))
        if forks:
            preloading.preload(preloading.WORKERS)
        for node in self._nodes:
            settings = replace(self._settings, node=node)
            environment = child_environment(os.environ, settings)
            spec = self._spec(f"node-{node.name}", worker_command(NODE))
            self._group.start(replace(spec, environment=environment))
        # The coordinator is the last that readiness depends on: its heartbeat makes `/health/ready` return 200.
        self._group.start(self._spec("coordinator", worker_command(COORDINATOR)))
        self._start_gateway()
        self._start_dashboards()

    def _start_gateway(self) -> None:
        fd = self._gateway.fileno()
        spec = self._spec("gateway", gateway_command(fd))
        brief = {**spec.environment, "TRAINYARD_GATEWAY_DRAIN_SECONDS": str(GATEWAY_DRAIN_SECONDS)}
        self._group.start(replace(spec, environment=brief, pass_fds=(fd,)))

    def _start_dashboards(self) -> None:
        if self._with_flower:
            flower = self._spec("flower", flower_command())
            self._group.start(replace(flower, niceness=DASHBOARD_NICENESS, forks=False))
        if self._tensorboard is not None:
            fd = self._tensorboard.fileno()
            boards = self._spec("tensorboard", tensorboard_command(fd))
            self._group.start(replace(boards, pass_fds=(fd,), niceness=DASHBOARD_NICENESS))

    def _spec(self, name: str, command: list[str]) -> ChildSpec:
        return ChildSpec(
            name=name,
            command=command,
            environment=child_environment(os.environ, self._settings),
            directory=self._dir / "run",
            forks=True,
        )

    def _prepare_database(self) -> Drain:
        # Imported while the children start, which takes as long; they wait for the schema if they are faster.
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

        from app.cli.local.node_drain import NodesDrain  # noqa: PLC0415
        from app.database.from_settings import open_database  # noqa: PLC0415
        from app.domain.errors import TrainyardError  # noqa: PLC0415
        from app.services.operations import bootstrap  # noqa: PLC0415

        try:
            bootstrap.prepare(self._settings)
            db = open_database(self._settings.database)
            drain = NodesDrain(db, self._node_names, self._dir / "run")
            drain.undo()
        except (SQLAlchemyError, TrainyardError) as error:
            raise NotPrepared(str(error)) from error
        return drain

    def _print_addresses(self) -> None:
        _print(f"API        {self._readiness.url}   key in {self._settings.admin_key_file}")
        if self._settings.web.enabled:
            _print(f"Dashboard  {self._readiness.url}/ui/   sign in with that key")
        if self._with_flower:
            flower = self._settings.flower
            url = f"http://{reachable(flower.host)}:{flower.port}"
            _print(f"Flower     {url}   user {flower.user}, password in {self._dir}/flower.password")
        _print(f"Logs       {self._dir / 'log'}")

    def _supervise(self, drain: Drain) -> None:
        """Restart ended children until a stop signal."""
        ready, cleared, due = False, drain.forget_simulated(), time.monotonic() + FORGET_SECONDS
        while not signals.wait(min(self._group.keep_running(), 1.0 if ready else READY_POLL_SECONDS)):
            if not ready and (ready := self._readiness.check(_print)):
                _print(f"Ready after {seconds_since_start():.1f} s. Ctrl-C saves running jobs and stops everything.")
            if not cleared and time.monotonic() > due:
                # The coordinator has revoked some more leases of attempts that ended with the previous start.
                cleared, due = drain.forget_simulated(), time.monotonic() + FORGET_SECONDS

    def _drain(self, drain: Drain) -> None:
        """Save and requeue running jobs; a second Ctrl-C skips the wait."""
        jobs = drain.begin()
        if jobs:
            _print(f"Stopping. Saving {jobs} running job(s), at most {DRAIN_SECONDS:g} s; Ctrl-C again skips the wait.")
        deadline = time.monotonic() + DRAIN_SECONDS
        while drain.is_busy() and time.monotonic() < deadline:
            if signals.wait(min(self._group.keep_running(), 0.1)):
                return

    def _stop(self) -> None:
        # Redis stops last: the others use it while they shut down.
        self._group.stop([name for name in self._group.names() if name != "redis"], seconds=STOP_SECONDS)
        self._group.stop(["redis"], seconds=STOP_SECONDS)
        url_file(self._settings).unlink(missing_ok=True)
        write_sandbox(self._settings, without=False)


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{reachable(host)}:{port}"


def _print(text: str) -> None:
    click.echo(text)
