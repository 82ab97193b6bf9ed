"""Moves bytes between two connections without a copy in this process. Standard library only: it has to start soon."""

import contextlib
import os
import socket
from collections.abc import Callable

from app.host.pipes import PIPE_BYTES, Pipes
from workers.rank.sessions.loop import EpollLoop

ROUNDS = 4  # for one connection, until others are served
SILENT_SECONDS = 120.0  # of one side, after the other has ended


class Direction:
    """What ``source`` sends, on its way to ``target``."""

    def __init__(self, pipes: Pipes, source: socket.socket, target: socket.socket) -> None:
        self._pipes, self._source, self._target = pipes, source, target
        self._pipe: tuple[int, int] | None = None
        self.held = 0  # bytes in the pipe, which the target does not take yet
        self.moved = 0
        self.has_ended = False  # and the target knows

    def move(self) -> bool:
        """What both sides can do now; whether there may be more. Raises OSError when one of them is broken."""
        return all((self.held > 0 or self._fill()) and self._drain() for _ in range(ROUNDS))

    def close(self) -> None:
        if self._pipe is not None:
            self._pipes.give_back(self._pipe, is_empty=not self.held)
            self._pipe = None

    def give_up(self) -> None:
        """The target takes no more."""
        self.close()
        self.held, self.has_ended = 0, True

    def _fill(self) -> bool:
        pipe = self._pipe = self._pipes.take()
        try:
            self.held = os.splice(self._source.fileno(), pipe[1], PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            self.close()
            return False
        if not self.held:
            self.close()
            self.has_ended = True
            with contextlib.suppress(OSError):
                self._target.shutdown(socket.SHUT_WR)
        self.moved += self.held
        return not self.has_ended

    def _drain(self) -> bool:
        assert self._pipe is not None  # noqa: S101 – for the type checker: something is in it
        try:
            self.held -= os.splice(self._pipe[0], self._target.fileno(), self.held, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return False
        if not self.held:
            self.close()
        return True


class Splice:
    """Both ways between a client and the job, until both have ended or one broke; one may end before the other.

    ``first`` passes on the first bytes of the job, and may return another connection that takes
    the place of the job's. ``on_end``: both connections are closed.
    """

    def __init__(
        self,
        loop: EpollLoop,
        pipes: Pipes,
        client: socket.socket,
        job: socket.socket,
        *,
        first: Callable[[socket.socket, socket.socket], socket.socket | None] | None = None,
        on_end: Callable[[], None],
    ) -> None:
        self._loop, self._pipes, self._client, self._job = loop, pipes, client, job
        self._first, self._on_end = first, on_end
        self._closed = False
        self._person, self._inside = loop.watch(client.fileno()), loop.watch(job.fileno())
        self._person.on_readable, self._person.on_writable = self._ask, self._answer
        self._person.on_break = self._broken  # it may be gone while the job reads nothing
        self._begin()

    def _begin(self) -> None:
        self._asked = Direction(self._pipes, self._client, self._job)
        self._answered = Direction(self._pipes, self._job, self._client)
        self._inside.on_readable, self._inside.on_writable = self._answer, self._ask
        self._update()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watched, connection in ((self._person, self._client), (self._inside, self._job)):
            watched.forget()
            connection.close()
        self._asked.close()
        self._answered.close()
        self._on_end()

    def _broken(self) -> None:
        """Unless both have said that they send no more, while the job has not read all: then nothing is wrong.

        This also shows a plain end: at once with a Unix socket, with TCP once the job's side has ended. What was said
        before it is passed on as far as the job takes it now.
        """
        if not self._asked.has_ended:
            with contextlib.suppress(OSError):
                while self._asked.move():
                    pass
        is_error = self._client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        if self._answered.has_ended and self._asked.held and not is_error:
            self._person.on_break = None
            self._update()
        else:
            self.close()

    def _ask(self) -> None:
        self._move(self._asked)

    def _answer(self) -> None:
        if self._first is None:
            self._move(self._answered)
            return
        first, self._first = self._first, None
        try:
            other = first(self._client, self._job)
        except BlockingIOError:
            self._first = first
        except OSError:
            self.close()
        else:
            if other is not None:
                self._go_on_with(other)

    def _go_on_with(self, other: socket.socket) -> None:
        self._inside.forget()
        self._job.close()
        self._asked.close()
        self._job, self._inside = other, self._loop.watch(other.fileno())
        self._begin()
        self._watch_silence(-1)

    def _move(self, direction: Direction) -> None:
        try:
            direction.move()
        except OSError:
            if direction is not self._asked or not direction.held:
                self.close()
                return
            direction.give_up()  # the job may have said why, as with 413, before it closed
            self._watch_silence(-1)
        self._update()

    def _update(self) -> None:
        asked, answered = self._asked, self._answered
        if asked.has_ended and answered.has_ended:
            self.close()
            return
        self._person.want(reads=not asked.has_ended and not asked.held, writes=answered.held > 0)
        self._inside.want(reads=not answered.has_ended and not answered.held, writes=asked.held > 0)

    def _watch_silence(self, seen: int) -> None:
        """A client that has gone need not have said so: what it may have said is only that nothing more comes."""
        if self._closed:
            return
        has_ended = self._asked.has_ended or self._answered.has_ended
        moved = self._asked.moved + self._answered.moved
        if has_ended and moved == seen:
            self.close()
        else:
            self._loop.call_after(SILENT_SECONDS, lambda: self._watch_silence(moved if has_ended else -1))
