"""TensorBoards of jobs: each a child process over a copy of the job's event files, ended when nobody looks any more.

One child for each job and not one for all: TensorBoard shows everything that lies below its directory to everybody, and
never forgets what it has read.
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
from app.storage.keys import is_event_file, run_file_key
from app.storage.storage import Storage

logger = logging.getLogger(__name__)
START_SECONDS = 60.0
REFRESH_SECONDS = 5
DEATH_SECONDS = 1.0
_ADDRESS = re.compile(rb" at http://127\.0\.0\.1:(\d+)/")
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONSAFEPATH")


class NoTensorBoard(Exception):
    """It did not start; the text says what it said."""


@dataclass
class _Board:
    directory: Path
    prefix: str  # of its paths; a secret, as everybody on this machine may connect to the port
    process: asyncio.subprocess.Process
    port: int
    drain: asyncio.Task[None]  # kept: the loop itself would forget it
    asked_at: float = field(default_factory=time.monotonic)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"


class Boards:
    """``most`` of them run at a time; one that was asked for nothing for ``idle_seconds`` is ended."""

    def __init__(self, storage: Storage, directory: Path, *, most: int, idle_seconds: float) -> None:
        self._storage = storage
        self._directory = directory
        self._most = most
        self._idle_seconds = idle_seconds
        self._boards: dict[str, _Board] = {}
        self._starting = asyncio.Lock()

    async def address(self, job_id: str) -> str:
        """Where the job's TensorBoard answers, which is started if need be. Raises NoTensorBoard, StorageRefused, …"""
        board = self._running(job_id)  # without waiting for those of other jobs that are starting
        if board is None:
            async with self._starting:
                board = self._running(job_id)
                if board is None:
                    await self._make_room(job_id)
                    board = self._boards[job_id] = await self._start(job_id)
        board.asked_at = time.monotonic()
        return board.address

    async def ended(self, job_id: str, address: str) -> bool:
        """Whether nothing runs there any more, of which one hears a moment after its connections break."""
        board = self._boards.get(job_id)
        if board is None or board.address != address:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(board.process.wait(), DEATH_SECONDS)
        return board.process.returncode is not None

    async def tend(self) -> None:
        """Copy what jobs have written since, and end the boards that nobody looks at; to be called again and again."""
        for job_id, board in list(self._boards.items()):
            if time.monotonic() - board.asked_at > self._idle_seconds:
                await self._end(job_id)
                continue
            try:
                await asyncio.to_thread(copy_event_files, self._storage, job_id, board.directory)
            except (TrainyardError, OSError) as error:  # the next look may find more, or the board has just ended
                logger.warning("event files of %s were not copied: %s", job_id, error)

    async def close(self) -> None:
        for job_id in list(self._boards):
            await self._end(job_id)

    def _running(self, job_id: str) -> _Board | None:
        board = self._boards.get(job_id)
        return board if board is not None and board.process.returncode is None else None

    async def _make_room(self, job_id: str) -> None:
        """Ends what is left of this job's, and the longest idle ones if there are too many."""
        await self._end(job_id)
        for idle in sorted(self._boards, key=lambda each: self._boards[each].asked_at)[: -self._most + 1 or None]:
            if len(self._boards) >= self._most:
                await self._end(idle)

    async def _start(self, job_id: str) -> _Board:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Of its own: into that of an earlier one something may still be copied.
        directory = Path(tempfile.mkdtemp(prefix=f"{job_id}-", dir=self._directory))
        try:
            await asyncio.to_thread(copy_event_files, self._storage, job_id, directory)
            return await _launched(directory, job_id)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    async def _end(self, job_id: str) -> None:
        board = self._boards.pop(job_id, None)
        if board is not None:
            await _killed(board.process)
            shutil.rmtree(board.directory, ignore_errors=True)


def copy_event_files(storage: Storage, job_id: str, directory: Path) -> None:
    """Bring the copy up to date. Files only grow, and TensorBoard goes on reading those that it has open.

    They lie in a directory of the job's, which TensorBoard shows as the name of the run.
    """
    run = directory / job_id
    run.mkdir(exist_ok=True)
    for stored in storage.list(run_file_key(job_id, "tensorboard")):
        name = stored.key.rpartition("/")[2]
        copy = run / name
        held = copy.stat().st_size if copy.exists() else 0
        if is_event_file(f"tensorboard/{name}") and stored.size_bytes > held:
            with storage.open(stored.key, held) as file, copy.open("ab") as copied:
                shutil.copyfileobj(file, copied)


async def _launched(directory: Path, job_id: str) -> _Board:
    """A TensorBoard over the directory, once it answers."""
    prefix = f"/{secrets.token_urlsafe(24)}"
    options = {
        "logdir": str(directory), "host": "127.0.0.1", "port": "0", "load_fast": "false",
        "reload_interval": str(REFRESH_SECONDS), "reload_multifile": "true", "window_title": job_id,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app.tensorboard.child", *(f"--{name}={value}" for name, value in options.items()),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=_environment(os.environ),
    )  # fmt: skip
    entrance = cast("asyncio.StreamWriter", process.stdin)
    entrance.write(f"{prefix}\n".encode())
    entrance.close()
    try:
        port = await asyncio.wait_for(_port_of(process), START_SECONDS)
    except (TimeoutError, NoTensorBoard):
        await _killed(process)
        raise
    return _Board(directory, prefix, process, port, drain=asyncio.create_task(_drained(process)))


async def _port_of(process: asyncio.subprocess.Process) -> int:
    """As it says itself. Raises NoTensorBoard when it ends instead."""
    stderr, said = cast("asyncio.StreamReader", process.stderr), b""
    while line := await stderr.readline():
        if found := _ADDRESS.search(line):
            return int(found[1])
        said = line
    raise NoTensorBoard(said.decode(errors="replace").strip() or "it said nothing")


async def _drained(process: asyncio.subprocess.Process) -> None:
    """What it says later goes nowhere, and does not stop it."""
    stderr = cast("asyncio.StreamReader", process.stderr)
    while await stderr.read(65536):
        pass


async def _killed(process: asyncio.subprocess.Process) -> None:
    """It holds nothing that must be put in order."""
    if process.returncode is None:
        process.kill()
    await process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """No setting and no credential: it reads files that jobs write."""
    return {name: value for name, value in environ.items() if name in _KEPT}
