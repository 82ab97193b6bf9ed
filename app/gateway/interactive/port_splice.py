"""Bytes between the connections of a browser and of a job, which this process does not copy."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tornado.iostream import IOStream

from app.gateway.interactive import client_sockets
from app.host.pipes import PIPE_BYTES, Pipes

LEAST_BYTES = 1 << 20  # of a body for which it pays
MOST_HELD_BYTES = 1 << 20  # that a stream has read ahead: a head, and what came with it
ROUNDS = 4  # until others are served

Moved = Callable[[], None]


@dataclass(frozen=True, eq=False)
class DetachedConnection:
    """A connection that was a stream's, and what the stream had read of it already."""

    connection: socket.socket
    held: bytes

    def resets(self) -> None:
        """It is reset when it is closed, which is left to who reads and writes it: the event loop must not wait for a
        closed one.
        """
        if self.connection.fileno() >= 0:
            client_sockets.resets(self.connection)


def taken(stream: IOStream) -> DetachedConnection:
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
    return DetachedConnection(connection, held)


async def pass_on(
    source: DetachedConnection,
    target: DetachedConnection,
    count: int | None,
    pipes: Pipes,
    moved: Moved,
    waits: Moved = lambda: None,
) -> int:
    """``count`` bytes, None for all until the end, or fewer where it ends before; how many the target has got.

    Calls ``moved`` each time that the target has taken some, ``waits`` when it takes none now. Raises OSError.
    """
    first = source.held if count is None else source.held[:count]
    if first:
        waits()
        await asyncio.get_running_loop().sock_sendall(target.connection, first)
        moved()
    rest = None if count is None else count - len(first)
    return len(first) + await _splice(source.connection, target.connection, rest, pipes, (moved, waits))


async def _splice(
    source: socket.socket, target: socket.socket, count: int | None, pipes: Pipes, calls: tuple[Moved, Moved]
) -> int:
    """Raises OSError."""
    rounds = done = 0
    while count is None or done < count:
        filled = _filled(source, PIPE_BYTES if count is None else min(PIPE_BYTES, count - done), pipes)
        if filled is None:
            await _event(source, writes=False)
            continue
        pipe, held = filled
        if not held:
            break
        await _drain(pipe, held, target, pipes, calls)
        done, rounds = done + held, rounds + 1
        if rounds % ROUNDS == 0:
            await asyncio.sleep(0)
    return done


def _filled(source: socket.socket, most: int, pipes: Pipes) -> tuple[tuple[int, int], int] | None:
    """A pipe, and how many bytes are in it; None: nothing has come yet. 0 is the end. Raises OSError."""
    pipe, held = pipes.take(), 0
    try:
        held = os.splice(source.fileno(), pipe[1], most, flags=os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return None
    finally:
        if not held:
            pipes.give_back(pipe, is_empty=True)
    return pipe, held


async def _drain(
    pipe: tuple[int, int], held: int, target: socket.socket, pipes: Pipes, calls: tuple[Moved, Moved]
) -> None:
    """Give the pipe back when the target has got all. Raises OSError."""
    moved, waits = calls
    try:
        while held:
            try:
                held -= os.splice(pipe[0], target.fileno(), held, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                waits()
                await _event(target, writes=True)
            else:
                moved()
    finally:
        pipes.give_back(pipe, is_empty=not held)


async def _event(connection: socket.socket, *, writes: bool) -> None:
    loop, ready, fd = asyncio.get_running_loop(), asyncio.Event(), connection.fileno()
    add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)
