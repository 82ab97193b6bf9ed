"""A large answer of a job on its way to the browser, whose bytes this process does not copy."""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Iterator

from tornado.iostream import IOStream, StreamClosedError

LEAST_BYTES = 1 << 20  # of an answer for which it pays
PIPE_BYTES = 1 << 20
ROUNDS = 4  # until others are served


async def pass_on(job: IOStream, browser: IOStream, count: int, moved: Callable[[], None]) -> None:
    """``count`` bytes, or fewer where one of them breaks; calls ``moved`` each time that the browser took some."""
    with contextlib.suppress(OSError, StreamClosedError):
        read = await job.read_bytes(count, partial=True)  # all that it holds already
        with job.socket.dup() as source, browser.socket.dup() as target, _pipe() as pipe:
            job.close()  # else it would read on by itself
            await browser.write(read)
            await _splice(source, target, count - len(read), pipe, moved)


async def _splice(
    source: socket.socket, target: socket.socket, count: int, pipe: tuple[int, int], moved: Callable[[], None]
) -> None:
    """Raises OSError."""
    held = rounds = 0
    while count or held:
        try:
            if not held:
                held = os.splice(source.fileno(), pipe[1], min(PIPE_BYTES, count), flags=os.SPLICE_F_NONBLOCK)
                if not held:
                    return
                count -= held
        except BlockingIOError:
            await _event(source, writes=False)
            continue
        try:
            held -= os.splice(pipe[0], target.fileno(), held, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            await _event(target, writes=True)
        moved()
        rounds += 1
        if rounds % ROUNDS == 0:
            await asyncio.sleep(0)


async def _event(connection: socket.socket, *, writes: bool) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
    add(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        remove(connection.fileno())


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Raises OSError."""
    pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with contextlib.suppress(OSError):  # a user may only have so much in pipes: a small one does, too
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        yield pipe
    finally:
        for fd in pipe:
            os.close(fd)
