"""An SSH server for one client, whose commands, shells, files and forwarded ports are those of a running job.

It has no authentication of its own: only the process that started it can write to it, and what that asks for is done
with the key of the user who runs it. Keys of SSH never leave this machine.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import asyncssh
import click

from app.cli.client.interactive import sftp_program
from app.cli.client.interactive.command_session import Input, run_command
from app.cli.client.interactive.exec_commands import RECORDED
from app.cli.client.interactive.forwarded_ports import carry
from app.cli.client.interactive.session_socket import CHUNK_BYTES, SessionError, SessionTicket, open_session
from app.cli.client.interactive.terminal import DEFAULT_SIZE, DEFAULT_TERM, MOST_CELLS
from app.domain.interactive import EXEC, OF_SSH, PORT_FORWARD, SHELL
from config.environment import user_cache_directory
from trainyard.client import Client, ClientError

Open = Callable[..., Awaitable[SessionTicket]]
LOOPBACK = ("localhost", "127.0.0.1", "::1", "ip6-localhost")
NO_EXIT_CODE = 255
_KEY_TYPE = "ssh-ed25519"


async def serve_ssh(connection: socket.socket, client: Client, job_id: str, place: Mapping[str, Any]) -> None:
    """Speaks SSH on the connection until it is closed. ``place``: rank, role and index of the API's request."""

    async def opens(**request: Any) -> SessionTicket:
        return await asyncio.to_thread(open_session, client, job_id, **place, **request)

    try:
        served = await _served(connection, opens)
    except (OSError, asyncssh.Error) as error:
        raise click.ClickException(f"its client has not spoken SSH to its end: {error}") from error
    await served.wait_closed()


async def _served(connection: socket.socket, opens: Open) -> asyncssh.SSHServerConnection:
    return await asyncssh.run_server(
        connection,
        server_factory=lambda: _Server(opens),
        server_host_keys=[host_key()],
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
        server_version="Trainyard",
        keepalive_interval=0,
    )


def host_key() -> asyncssh.SSHKey:
    """The same each time, so that ssh has no reason to warn; made the first time, and readable for the user alone."""
    path = user_cache_directory() / "ssh_host_key"
    try:
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError):
        pass
    key = asyncssh.generate_private_key(_KEY_TYPE)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.export_private_key())
    new.replace(path)
    return asyncssh.read_private_key(path)


class _Server(asyncssh.SSHServer):
    """Lets its one client in, and connects it with ports of the job."""

    def __init__(self, opens: Open) -> None:
        self._opens = opens

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 – asyncssh's signature
        return False

    def connection_requested(
        self,
        dest_host: str,
        dest_port: int,
        orig_host: str,  # noqa: ARG002 – asyncssh's signature
        orig_port: int,  # noqa: ARG002
    ) -> Any:  # noqa: ANN401 – one of asyncssh's many kinds
        if dest_host not in LOOPBACK:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
                f"only ports of the job itself are reached, as localhost, not {dest_host[:100]}",
            )
        return partial(_carried, self._opens, dest_port)

    def session_requested(self) -> "_Process":
        return _Process(partial(_serve_process, self._opens), None, 0, allow_scp=False)


class _Process(asyncssh.SSHServerProcess[bytes]):
    """Also serves the subsystem sftp by a program in the job, where asyncssh would serve files of this machine."""

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    def session_started(self) -> None:
        reader = asyncssh.SSHReader[bytes](self, self._chan)
        output = asyncssh.SSHWriter[bytes](self, self._chan)
        errors = asyncssh.SSHWriter[bytes](self, self._chan, asyncssh.EXTENDED_DATA_STDERR)
        started = self._start_process(reader, output, errors)
        if self._conn is not None and asyncio.iscoroutine(started):
            self._conn.create_task(started, reader.logger)


async def _carried(opens: Open, port: int, reader: Any, writer: Any) -> None:  # noqa: ANN401 – asyncssh's streams
    """One forwarded connection."""
    try:
        await carry(await opens(kind=PORT_FORWARD, port=port), reader, writer)
    except (ClientError, SessionError) as error:
        sys.stderr.write(f"port {port}: {error}\n")
    finally:
        writer.close()


async def _serve_process(opens: Open, process: asyncssh.SSHServerProcess[bytes]) -> None:
    """One command, shell or subsystem of the client."""
    try:
        opened = await opens(**_request(process))
        if opened.recorded and process.subsystem is None:
            process.stderr.write(f"{RECORDED}\r\n".encode())
        outcome = await run_command(opened, _Ends(process))
    except (ClientError, SessionError) as error:
        process.stderr.write(f"trainyard: {error}\r\n".encode())
        process.exit(NO_EXIT_CODE)
    else:
        if outcome.message:
            process.stderr.write(f"{outcome.message}\r\n".encode())
        process.exit(outcome.code_of_process)


def _request(process: asyncssh.SSHServerProcess[bytes]) -> dict[str, Any]:
    """What the session server is asked for."""
    if process.subsystem is not None:
        return {"kind": EXEC, "command": sftp_program.command(), "tty": False}
    has_terminal = process.term_type is not None
    terminal: dict[str, Any] = {}
    if has_terminal:
        rows, columns = _size(*process.term_size[:2])
        terminal = {"rows": rows, "columns": columns, "term": process.term_type or DEFAULT_TERM}
    if process.command is None and has_terminal:
        return {"kind": SHELL, **terminal}
    command = [*OF_SSH, process.command] if process.command is not None else ["/bin/sh"]
    return {"kind": EXEC, "command": command, "tty": has_terminal, **terminal}


def _size(columns: int, rows: int) -> tuple[int, int]:
    """(rows, columns) of what SSH says, which is 0 for what the client does not know."""
    return min(rows, MOST_CELLS) or DEFAULT_SIZE[0], min(columns, MOST_CELLS) or DEFAULT_SIZE[1]


class _Ends:
    """A channel of SSH as the ends of a command."""

    def __init__(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self._process = process

    async def feed(self, to: Input) -> None:
        if self._process.subsystem is not None:
            await to.write(sftp_program.source())
        while True:
            try:
                data = await self._process.stdin.read(CHUNK_BYTES)
            except asyncssh.TerminalSizeChanged as change:
                await to.resize(*_size(change.width, change.height))
                continue
            except asyncssh.BreakReceived:
                continue
            except asyncssh.SignalReceived as signal:
                raise SessionError(f"ended by the client's signal {signal.signal}") from signal
            if not data:
                break
            await to.write(data)
        await to.end()

    async def write(self, data: bytes, *, is_error: bool) -> None:
        writer = self._process.stderr if is_error else self._process.stdout
        try:
            writer.write(data)
            await writer.drain()
        except (OSError, asyncssh.Error) as error:
            raise SessionError("the client has closed its end") from error
