"""Bytes between the connections of a browser and of a job, which this process does not copy."""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tornado.iostream import IOStream

from app.gateway.interactive import client_sockets

LEAST_BYTES = 1 << 20  # of a body for which it pays
MOST_HELD_BYTES = 1 << 20  # that a stream has read ahead: a head, and what came with it
PIPE_BYTES = 1 << 20
ROUNDS = 4  # until others are served

Moved = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Taken:
    """A connection that was a stream's, and what the stream had read of it already."""

    connection: socket.socket
    held: bytes

    def resets(self) -> None:
        """It is reset when it is closed, which is left to who reads and writes it: the event loop must not wait for a
        closed one.
        """
        if self.connection.fileno() >= 0:
            client_sockets.resets(self.connection)


def taken(stream: IOStream) -> Taken:
    """The connection of a stream that is not being read, and whose writes are done.

    The stream is closed, since it would read on by itself. Raises OSError when it is closed already.
    """
    if stream.closed():
        raise OSError("the connection is closed")
    connection = stream.socket.dup()
    reading = asyncio.ensure_future(stream.read_bytes(MOST_HELD_BYTES, partial=True))
    held = reading.result() if reading.done() and reading.exception() is None else b""
    reading.add_done_callback(lambda done: done.exception())  # what has not been read stays in the connection
    stream.close()
    return Taken(connection, held)


async def pass_on(source: Taken, target: Taken, count: int | None, moved: Moved, waits: Moved = lambda: None) -> int:
    """``count`` bytes, None for all until the end, or fewer where it ends before; how many the target has got.

    Calls ``moved`` each time that the target has taken some, ``waits`` when it takes none now. Raises OSError.
    """
    first = source.held if count is None else source.held[:count]
    if first:
        waits()
        await asyncio.get_running_loop().sock_sendall(target.connection, first)
        moved()
    rest = None if count is None else count - len(first)
    with _pipe() as pipe:
        return len(first) + await _splice(source.connection, target.connection, rest, pipe, (moved, waits))


async def _splice(
    source: socket.socket, target: socket.socket, count: int | None, pipe: tuple[int, int], calls: tuple[Moved, Moved]
) -> int:
    """Raises OSError."""
    held = rounds = done = 0
    moved, waits = calls
    while held or count is None or done < count:
        try:
            if not held:
                most = PIPE_BYTES if count is None else min(PIPE_BYTES, count - done)
                held = os.splice(source.fileno(), pipe[1], most, flags=os.SPLICE_F_NONBLOCK)
                if not held:
                    return done
        except BlockingIOError:
            await _event(source, writes=False)
            continue
        try:
            sent = os.splice(pipe[0], target.fileno(), held, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            waits()
            await _event(target, writes=True)
            continue
        held, done = held - sent, done + sent
        moved()
        rounds += 1
        if rounds % ROUNDS == 0:
            await asyncio.sleep(0)
    return done


async def _event(connection: socket.socket, *, writes: bool) -> None:
    loop, ready, fd = asyncio.get_running_loop(), asyncio.Event(), connection.fileno()
    add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


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
