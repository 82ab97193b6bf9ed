"""Accepts connections of the relay, reads what each asks for, and hands it on. Standard library only."""

import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard.protocol.interactive import MAX_REQUEST_BYTES
from workers.rank.sessions import commands, requests
from workers.rank.sessions.command_session import CommandSession
from workers.rank.sessions.commands import NotStarted, RunningCommand
from workers.rank.sessions.loop import EpollLoop
from workers.rank.sessions.notebook import Notebook
from workers.rank.sessions.port_connection import Connecting, PortUnreachable
from workers.rank.sessions.process_tree import MARK, ProcessTree
from workers.rank.sessions.requests import BadSessionRequest, Connect, Exec
from workers.rank.sessions.streams import read

MOST_COMMANDS = 128
MOST_CONNECTIONS = 1024  # also of those that have not asked yet
STARTED = b'{"type": "started"}\n'
REQUEST_SECONDS = 10.0
REST_SECONDS = 0.1
CHANNEL = "TRAINYARD_CHANNEL"  # a script that is tried out in a shell must not report as the rank


@dataclass(frozen=True)
class CommandEnvironment:
    """Where commands start: the environments of the ranks of this node, by rank, and their directory.

    ``directories``: of ranks that have another one, as those of roles.
    """

    environments: Mapping[int, Mapping[str, str]]
    directory: str
    directories: Mapping[int, str] = field(default_factory=dict)

    def directory_of(self, rank: int) -> str:
        return self.directories.get(rank, self.directory)

    @property
    def first_environment(self) -> Mapping[str, str]:
        return self.environments[min(self.environments)]


class SessionServer:
    """One thread; ends when the agent ends."""

    def __init__(
        self, loop: EpollLoop, listener: socket.socket, place: CommandEnvironment, notebook: Notebook | None = None
    ) -> None:
        self._loop, self._listener, self._place = loop, listener, place
        self._notebook = notebook
        self._commands: dict[int, CommandSession] = {}  # by the number of its process, until that has ended
        self._sessions = 0  # also of commands that have ended, until their clients hang up
        self._connections = 0
        listener.setblocking(False)
        self._accepting = loop.watch(listener.fileno())
        self._accepting.on_readable = self._accept
        self._accepting.want(reads=True, writes=False)

    def reap(self) -> None:
        """Collect children that have ended, also orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            session = self._commands.pop(pid, None)  # at once: its number may be another's from now on
            if session is not None:
                session.exited(status)
            elif self._notebook is not None:
                self._notebook.ended(pid, status)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it is gone again, or there are no descriptors left: not asked for until some may be
            self._accepting.want(reads=False, writes=False)
            self._loop.call_after(REST_SECONDS, lambda: self._accepting.want(reads=True, writes=False))
            return
        connection.setblocking(False)
        if self._connections >= MOST_CONNECTIONS:
            refuse(connection, f"more than {MOST_CONNECTIONS} connections are open in the job's sandbox")
            return
        self._connections += 1
        RequestReader(self._loop, connection, self)

    def left(self) -> None:
        """A connection has ended."""
        self._connections -= 1

    def serve(self, connection: socket.socket, line: bytes, rest: bytes) -> None:
        """What a connection asks for; ``rest`` came behind its line."""
        try:
            request = requests.parse(line)
            if isinstance(request, Connect):
                self._connect(connection, request.port, has_more=bool(rest))
            else:
                self._start(connection, request, rest)
        except BadSessionRequest as error:
            self._refuse(connection, str(error))
        except PortUnreachable as error:
            self._refuse(connection, str(error), **({"final": True} if error.final else {}))
        except NotStarted as error:
            self._refuse(connection, str(error), exit_code=error.exit_code)

    def _start(self, connection: socket.socket, request: Exec, rest: bytes) -> None:
        """Raises BadSessionRequest and NotStarted."""
        known = self._place.environments.get(request.rank)
        if known is None:
            here = ", ".join(map(str, sorted(self._place.environments)))
            raise BadSessionRequest(f"rank: {request.rank} is not on this node, which has {here}")
        if self._sessions >= MOST_COMMANDS:
            raise BadSessionRequest(f"{MOST_COMMANDS} shells and commands are open in the job's sandbox; close one")
        mark = secrets.token_hex(8)
        environment = {**known, MARK: mark}
        environment.pop(CHANNEL, None)
        if request.tty:
            environment["TERM"] = request.term
        started = self._started(request, environment)
        answer(connection, STARTED)
        session = CommandSession(
            self._loop, connection, started, ProcessTree(started.pid, mark), lambda: self._ended(session)
        )
        self._commands[started.pid] = session
        self._sessions += 1
        if rest:
            session.feed(rest)

    def _started(self, request: Exec, environment: Mapping[str, str]) -> RunningCommand:
        """Raises NotStarted."""
        command = request.command or (commands.shell_of(environment),)
        directory = self._place.directory_of(request.rank)
        if request.tty:
            size = request.rows, request.columns
            return commands.start_on_terminal(command, directory, environment, size)
        return commands.start(command, directory, environment)

    def _ended(self, session: CommandSession) -> None:
        self._sessions -= 1
        if self._commands.get(session.pid) is session:  # its process has not ended yet
            del self._commands[session.pid]
        self.left()

    def _connect(self, connection: socket.socket, port: int, *, has_more: bool) -> None:
        """Raises BadSessionRequest and PortUnreachable."""
        if has_more:
            raise BadSessionRequest("who asks for a port sends nothing to it before the answer")
        if port == requests.NOTEBOOK:
            if self._notebook is None:
                raise PortUnreachable("the job has no notebook: interactive_config.notebook is not set", final=True)
            port = self._notebook.port()

        asked = self._loop.watch(connection.fileno())

        def connected(to: socket.socket) -> None:
            asked.forget()
            hand_over(connection, to)
            self.left()

        def failed(error: PortUnreachable) -> None:
            asked.forget()
            self._refuse(connection, str(error))

        connecting = Connecting(self._loop, port, connected, failed)

        def hung_up() -> None:
            asked.forget()
            connecting.cancel()
            connection.close()
            self.left()

        if not connecting.is_done:
            asked.on_break = hung_up
            asked.want(reads=False, writes=False)

    def _refuse(self, connection: socket.socket, message: str, **more: Any) -> None:
        refuse(connection, message, **more)
        self.left()


class RequestReader:
    """A connection until its first line is complete."""

    def __init__(self, loop: EpollLoop, connection: socket.socket, server: SessionServer) -> None:
        self._connection, self._server = connection, server
        self._line = b""
        self._done = False
        self._watched = loop.watch(connection.fileno())
        self._watched.on_readable = self._read
        self._watched.want(reads=True, writes=False)
        loop.call_after(REQUEST_SECONDS, self._give_up)

    def _read(self) -> None:
        data = read(self._connection.fileno())
        if data is None:
            return
        self._line += data
        line, newline, rest = self._line.partition(b"\n")
        if len(line) > MAX_REQUEST_BYTES:
            self._end(f"the request is longer than {MAX_REQUEST_BYTES} bytes")
        elif newline:
            self._done = True
            self._watched.forget()
            self._server.serve(self._connection, line, rest)
        elif not data:
            self._end("the connection ended before its request")

    def _give_up(self) -> None:
        if not self._done:
            self._end(f"no request came within {REQUEST_SECONDS:g} s")

    def _end(self, message: str) -> None:
        self._done = True
        self._watched.forget()
        refuse(self._connection, message)
        self._server.left()


def answer(connection: socket.socket, line: bytes) -> None:
    """A new connection has room for a line; one that has none is broken, which shows later."""
    try:
        connection.send(line, socket.MSG_NOSIGNAL)
    except OSError:
        return


def hand_over(connection: socket.socket, to: socket.socket) -> None:
    """The relay gets the connection to the port itself, so that what goes through it does not pass here."""
    with connection, to, contextlib.suppress(OSError):
        socket.send_fds(connection, [STARTED], [to.fileno()])


def refuse(connection: socket.socket, message: str, **more: Any) -> None:
    """Say why, and hang up."""
    answer(connection, json.dumps({"type": "refused", "message": message, **more}).encode() + b"\n")
    connection.close()


def wake_on_children(loop: EpollLoop, server: SessionServer) -> socket.socket:
    """The server collects its children when the kernel says that one has ended; the socket has to be kept."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def woken() -> None:
        read(reader.fileno())
        server.reap()

    watched = loop.watch(reader.fileno())
    watched.on_readable = woken
    watched.want(reads=True, writes=False)
    return writer
