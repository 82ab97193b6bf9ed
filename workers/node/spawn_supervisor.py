"""Starts supervisors as processes in their own sessions, which outlive the node worker."""

import contextlib
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from app.database.engine import Database
from app.domain.errors import TrainyardError
from app.host.fork_servers import supervisors_socket
from app.host.processes import place
from app.services.attempts import leases
from app.services.attempts.leases import Claim
from config.settings import Settings
from workers.fork_server.requests import NoForkServer, ask, connect
from workers.process_environment import process_environment, process_interpreter
from workers.run_dir.cleanup import settle

log = logging.getLogger(__name__)

Spawn = Callable[[Settings, str, int], int]

# Claims per transaction. If this process is killed before it has started their supervisors, each claim counts as a lost
# attempt.
CLAIM_BATCH_SIZE = 10

# Collected here to be reaped; init reaps a supervisor whose node worker died.
_spawned: list[subprocess.Popen[bytes]] = []
_starting: list[tuple[str, int]] = []  # an attempt appears twice when message and poll coincide
_lock = threading.Lock()


def spawn_supervisor(settings: Settings, job_id: str, attempt: int, *, fork_server: Path | None = None) -> int:
    """Start the supervisor of a claimed attempt; returns its pid.

    It is forked by the fork server that listens at ``fork_server``, by default the data directory's. If there is none,
    it starts as a program.
    """
    command, environment = supervisor_command(job_id, attempt), process_environment(settings)
    with supervisor_log(settings.data.dir) as output:
        with contextlib.suppress(NoForkServer):
            request = {"command": command, "environment": environment}
            path = fork_server or supervisors_socket(settings.data.dir)
            return ask(connect(path), path, request, [output.fileno()])
        process = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    with _lock:
        _spawned.append(process)
    return process.pid


def start_attempts(
    settings: Settings, db: Database, attempts: Sequence[tuple[str, int]], *, node: str, spawn: Spawn = spawn_supervisor
) -> int:
    """Claim dispatched attempts (job id, attempt number) and start their supervisors; returns how many.

    The others could not be claimed by this node. Idempotent and safe to call concurrently: the claim is a conditional
    UPDATE. A failure is logged and does not prevent the start of the others. ``spawn`` replaces ``spawn_supervisor``.
    """
    reap_supervisors()
    with _lock:
        _starting.extend(attempts)
    try:
        return sum(
            _start_together(settings, db, attempts[start : start + CLAIM_BATCH_SIZE], node, spawn)
            for start in range(0, len(attempts), CLAIM_BATCH_SIZE)
        )
    finally:
        with _lock:
            for each in attempts:
                _starting.remove(each)


def _start_together(
    settings: Settings, db: Database, attempts: Sequence[tuple[str, int]], node: str, spawn: Spawn
) -> int:
    for job_id, attempt in attempts:
        settle(settings, db, job_id, attempt, node=node)
    claims: list[Claim] = []
    others = attempts
    if len(attempts) > 1:
        claims, others = leases.claim_together(db, attempts, node=node, boot_id=place())
    started = sum(_is_spawned(spawn, settings, claim.job_id, claim.attempt) for claim in claims)
    for job_id, attempt in others:
        try:
            claim = leases.claim(db, job_id=job_id, attempt=attempt, node=node, boot_id=place())
        except TrainyardError as error:
            log.warning("attempt %s of job %s was not claimed: %s", attempt, job_id, error)
            continue
        if claim is not None:
            started += _is_spawned(spawn, settings, job_id, attempt)
    return started


def _is_spawned(spawn: Spawn, settings: Settings, job_id: str, attempt: int) -> bool:
    try:
        spawn(settings, job_id, attempt)
    # out of memory or descriptors: the attempt manager finds the attempt without a supervisor and releases it
    except OSError:
        log.exception("the supervisor of attempt %s of job %s could not be started", attempt, job_id)
        return False
    return True


def is_starting(job_id: str, attempt: int) -> bool:
    """Whether a thread of this process is between claiming the attempt and starting its supervisor."""
    with _lock:
        return (job_id, attempt) in _starting


def supervisor_command(job_id: str, attempt: int) -> list[str]:
    """The command line of an attempt's supervisor."""
    return [*process_interpreter(), "-m", "workers.supervisor.main", "--job", job_id, "--attempt", str(attempt)]


def reap_supervisors() -> None:
    """Reap the supervisors of this process that have ended."""
    with _lock:
        _spawned[:] = [process for process in _spawned if process.poll() is None]


@contextlib.contextmanager
def supervisor_log(data_dir: Path) -> Iterator[IO[bytes]]:
    """One log file for all supervisors of this node; every line carries the job's id."""
    directory = data_dir / "log"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "supervisors.log").open("ab", buffering=0) as file:
        yield file
