"""Starts the supervisors of attempts as processes of their own sessions, which outlive the node worker."""

import contextlib
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, NoReturn

import sqlalchemy

from app.domain.errors import TrainyardError
from app.extensions import Database
from app.services import leases
from app.services.leases import Claim
from config.settings import Settings, variable_name
from workers.left_behind import settle
from workers.processes import hold_back, place

log = logging.getLogger(__name__)

# Claims that share a transaction. Should this process be killed before it has started their supervisors, each of
# them counts as a lost one.
TOGETHER = 10

# Handed from here so that they are reaped; a supervisor whose node worker died is reaped by init.
_spawned: list[subprocess.Popen[bytes]] = []
_starting: list[tuple[str, int]] = []  # twice when message and poll meet
_lock = threading.Lock()


def start_attempts(settings: Settings, db: Database, attempts: Sequence[tuple[str, int]], *, node: str) -> int:
    """Claim dispatched attempts (job, number) and start their supervisors; returns how many.

    The others were not (or no longer) ours to claim. Safe to call twice for the same attempt, also at the same time:
    the claim is a conditional UPDATE. What fails for one is logged, and keeps no other from its start.
    """
    reap_supervisors()
    with _lock:
        _starting.extend(attempts)
    try:
        return sum(
            _start_together(settings, db, attempts[start : start + TOGETHER], node)
            for start in range(0, len(attempts), TOGETHER)
        )
    finally:
        with _lock:
            for each in attempts:
                _starting.remove(each)


def _start_together(settings: Settings, db: Database, attempts: Sequence[tuple[str, int]], node: str) -> int:
    for job_id, attempt in attempts:
        settle(settings, db, job_id, attempt, node=node)
    claims: list[Claim] = []
    others = attempts
    if len(attempts) > 1:
        claims, others = leases.claim_together(db, attempts, node=node, boot_id=place())
    started = sum(_spawned_supervisor(settings, claim.job_id, claim.attempt) for claim in claims)
    for job_id, attempt in others:
        try:
            claim = leases.claim(db, job_id=job_id, attempt=attempt, node=node, boot_id=place())
        except TrainyardError as error:
            log.warning("attempt %s of job %s not taken up: %s", attempt, job_id, error)
            continue
        if claim is not None:
            started += _spawned_supervisor(settings, job_id, attempt)
    return started


def _spawned_supervisor(settings: Settings, job_id: str, attempt: int) -> bool:
    try:
        spawn_supervisor(settings, job_id, attempt)
    except OSError:  # no memory, no descriptors: the keeper finds the attempt without a supervisor, and gives it back
        log.exception("the supervisor of attempt %s of job %s could not be started", attempt, job_id)
        return False
    return True


def is_starting(job_id: str, attempt: int) -> bool:
    """Whether a thread of this process is between the claim of an attempt and the start of its supervisor."""
    with _lock:
        return (job_id, attempt) in _starting


def spawn_supervisor(settings: Settings, job_id: str, attempt: int) -> int:
    """Start the supervisor of a claimed attempt; returns its pid."""
    with _log_file(settings.data.dir) as log:
        process = subprocess.Popen(
            supervisor_command(job_id, attempt),
            env=supervisor_environment(settings),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with _lock:
        _spawned.append(process)
    return process.pid


def supervisor_command(job_id: str, attempt: int) -> list[str]:
    """What the supervisor of an attempt executes."""
    return [*_interpreter(), "-m", "workers.supervisor", "--job", job_id, "--attempt", str(attempt)]


def become_supervisor(job_id: str, attempt: int, *, told_to_end: bool, checkpoints_asked: int | None) -> NoReturn:
    """Turn this supervisor into that of the job's next attempt: same process, same session, everything else anew.

    What nobody is there to hear meanwhile must not end it: nudges are ignored, SIGTERM waits. The fence does not
    survive, and need not, for no rank runs. Main thread only. Raises OSError.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    hold_back(signal.SIGTERM)
    if told_to_end:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    command = supervisor_command(job_id, attempt)
    if checkpoints_asked is not None:
        # What is wished for until it reads wishes again was answered with 202, and is to be made.
        command += ["--checkpoints-asked", str(checkpoints_asked)]
    os.execv(command[0], command)  # noqa: S606


def reap_supervisors() -> None:
    """Collect the supervisors of this process that have ended."""
    with _lock:
        _spawned[:] = [process for process in _spawned if process.poll() is None]


def supervisor_environment(settings: Settings) -> dict[str, str]:
    """This process's environment with exactly these settings in it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    ours |= settings_environment(settings)
    ours["PYTHONSAFEPATH"] = "1"
    ours["PYTHONPATH"] = str(Path(__file__).parents[1])
    ours["MALLOC_ARENA_MAX"] = "1"  # a few quiet threads don't need a heap each
    return ours


def settings_environment(settings: Settings) -> dict[str, str]:
    """The variables from which ``load_settings`` makes equal settings."""
    variables = {}
    for concern in fields(settings):
        part = getattr(settings, concern.name)
        for each in fields(part):
            variables[variable_name(concern.name, each.name)] = _text(getattr(part, each.name))
    return variables


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        separator = ":" if all(isinstance(item, Path) for item in value) else ","
        return separator.join(map(str, value))
    return str(value)


def _interpreter() -> list[str]:
    """Without docstrings (3.5 MB of every supervisor) where the installation has compiled SQLAlchemy that way.

    Elsewhere each start would compile it anew, which takes longer than everything else.
    """
    compiled = importlib.util.cache_from_source(sqlalchemy.__file__, optimization="2")
    return [sys.executable, "-OO"] if Path(compiled).exists() else [sys.executable]


@contextlib.contextmanager
def _log_file(data_dir: Path) -> Iterator[IO[bytes]]:
    """One file for all supervisors of this node: each line says whose it is."""
    directory = data_dir / "log"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "supervisors.log").open("ab", buffering=0) as file:
        yield file
