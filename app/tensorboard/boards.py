"""TensorBoards of jobs: each is a child process on a copy of the job's event files, stopped when it is idle.

One child per job instead of one for all: TensorBoard shows everything below its directory to every user and never
frees what it has read.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from app.domain.errors import TrainyardError
from app.storage.object_keys import is_event_file, run_file_key
from app.storage.storage import Storage

logger = logging.getLogger(__name__)
START_SECONDS = 60.0
REFRESH_SECONDS = 5
DEATH_SECONDS = 1.0
_ADDRESS = re.compile(rb" at http://127\.0\.0\.1:(\d+)/")
_FREE_NAME = re.compile(r"[A-Za-z0-9._ -]{1,128}")
_PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONSAFEPATH")


class NoTensorBoard(Exception):
    """TensorBoard did not start; the message is its last line of output."""


@dataclass
class _Board:
    directory: Path
    run: Path  # the directory of the event files
    prefix: str  # of its paths; secret, because any user of this machine may connect to the port
    process: asyncio.subprocess.Process
    port: int
    drain: asyncio.Task[None]  # a reference, because the event loop holds only a weak one
    asked_at: float = field(default_factory=time.monotonic)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"


class Boards:
    """Runs at most ``most`` TensorBoards at a time; stops those without requests for ``idle_seconds``."""

    def __init__(self, storage: Storage, directory: Path, *, most: int, idle_seconds: float) -> None:
        self._storage = storage
        self._directory = directory
        self._most = most
        self._idle_seconds = idle_seconds
        self._boards: dict[str, _Board] = {}
        self._starting = asyncio.Lock()

    async def address(self, job_id: str, name: str) -> str:
        """The address of the job's TensorBoard, started if necessary. Raises NoTensorBoard and storage errors.

        ``name``: of the job, by which its only run is shown.
        """
        board = self._running(job_id)  # without waiting for starting boards of other jobs
        if board is None:
            async with self._starting:
                board = self._running(job_id)
                if board is None:
                    await self._make_room(job_id)
                    board = self._boards[job_id] = await self._start(job_id, run_of(job_id, name))
        board.asked_at = time.monotonic()
        return board.address

    async def ended(self, job_id: str, address: str) -> bool:
        """Whether the board has ended; waits briefly, because its exit follows its broken connections."""
        board = self._boards.get(job_id)
        if board is None or board.address != address:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(board.process.wait(), DEATH_SECONDS)
        return board.process.returncode is not None

    async def tend(self) -> None:
        """Copy new event files and stop idle boards; call it periodically."""
        for job_id, board in list(self._boards.items()):
            if time.monotonic() - board.asked_at > self._idle_seconds:
                await self._end(job_id)
                continue
            try:
                await asyncio.to_thread(copy_event_files, self._storage, job_id, board.run)
            except (TrainyardError, OSError) as error:  # the next call retries; or the board has just ended
                logger.warning("event files of %s were not copied: %s", job_id, error)

    async def close(self) -> None:
        for job_id in list(self._boards):
            await self._end(job_id)

    def _running(self, job_id: str) -> _Board | None:
        board = self._boards.get(job_id)
        return board if board is not None and board.process.returncode is None else None

    async def _make_room(self, job_id: str) -> None:
        """Stop the remains of this job's board, and the longest idle boards above the limit."""
        await self._end(job_id)
        for idle in sorted(self._boards, key=lambda each: self._boards[each].asked_at)[: -self._most + 1 or None]:
            if len(self._boards) >= self._most:
                await self._end(idle)

    async def _start(self, job_id: str, run: str) -> _Board:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A new directory: a copy into that of a previous board may still be running.
        directory = Path(tempfile.mkdtemp(prefix=f"{job_id}-", dir=self._directory))
        try:
            await asyncio.to_thread(copy_event_files, self._storage, job_id, directory / run)
            return await _launched(directory, job_id, run)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    async def _end(self, job_id: str) -> None:
        board = self._boards.pop(job_id, None)
        if board is not None:
            await _killed(board.process)
            shutil.rmtree(board.directory, ignore_errors=True)


def run_of(job_id: str, name: str) -> str:
    """The name of the directory that TensorBoard shows as the run."""
    return name if _FREE_NAME.fullmatch(name) and name.strip(". ") else job_id


def copy_event_files(storage: Storage, job_id: str, run: Path) -> None:
    """Update the copy. Files only grow, and TensorBoard continues to read the files it has open."""
    run.mkdir(exist_ok=True)
    for stored in storage.list(run_file_key(job_id, "tensorboard")):
        name = stored.key.rpartition("/")[2]
        copy = run / name
        held = copy.stat().st_size if copy.exists() else 0
        if is_event_file(f"tensorboard/{name}") and stored.size_bytes > held:
            with storage.open(stored.key, held) as file, copy.open("ab") as copied:
                shutil.copyfileobj(file, copied)


async def _launched(directory: Path, job_id: str, run: str) -> _Board:
    """Start a TensorBoard on the directory and wait until it listens."""
    prefix = f"/{secrets.token_urlsafe(24)}"
    options = {
        "logdir": str(directory),
        "host": "127.0.0.1",
        "port": "0",
        "load_fast": "false",
        "reload_interval": str(REFRESH_SECONDS),
        "reload_multifile": "true",
        "window_title": job_id,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app.tensorboard.child",
        *(f"--{name}={value}" for name, value in options.items()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(os.environ),
    )
    stdin = cast("asyncio.StreamWriter", process.stdin)
    stdin.write(f"{prefix}\n".encode())
    stdin.close()
    try:
        port = await asyncio.wait_for(_port_of(process), START_SECONDS)
    except (TimeoutError, NoTensorBoard):
        await _killed(process)
        raise
    return _Board(directory, directory / run, prefix, process, port, drain=asyncio.create_task(_drained(process)))


async def _port_of(process: asyncio.subprocess.Process) -> int:
    """The port that it reports. Raises NoTensorBoard if it exits instead."""
    stderr, last_line = cast("asyncio.StreamReader", process.stderr), b""
    while line := await stderr.readline():
        if found := _ADDRESS.search(line):
            return int(found[1])
        last_line = line
    raise NoTensorBoard(last_line.decode(errors="replace").strip() or "it exited without output")


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Discard further output, so that a full pipe does not block it."""
    stderr = cast("asyncio.StreamReader", process.stderr)
    while await stderr.read(65536):
        pass


async def _killed(process: asyncio.subprocess.Process) -> None:
    """Kill the process at once: it has no state to save."""
    if process.returncode is None:
        process.kill()
    await process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings and credentials, because TensorBoard reads files written by jobs."""
    return {name: value for name, value in environ.items() if name in _PASSED_VARIABLES}
