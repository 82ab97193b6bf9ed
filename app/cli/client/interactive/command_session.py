"""Runs a command in a job: its frames to the ends that a caller has, and what became of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from app.cli.client.interactive.session_socket import (
    SessionClosed,
    SessionError,
    SessionSocket,
    SessionTicket,
    connected,
)
from trainyard.protocol.interactive import CLOSE, RESIZE, STATUS, STDERR, STDIN, STDOUT
from trainyard.protocol.session_answers import BadAnswer, read_status

NO_EXIT_CODE = 255  # as ssh does when it is not the command that failed


@dataclass(frozen=True)
class CommandOutcome:
    """``exit_code`` is None when the command did not end by itself; the message says why."""

    exit_code: int | None
    signal: str = ""
    message: str = ""

    @property
    def code_of_process(self) -> int:
        return NO_EXIT_CODE if self.exit_code is None else self.exit_code


class Input:
    """Sends what a caller reads."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send

    async def write(self, data: bytes) -> None:
        await self._send(bytes([STDIN]) + data)

    async def end(self) -> None:
        await self._send(bytes([CLOSE, STDIN]))

    async def resize(self, rows: int, columns: int) -> None:
        await self._send(bytes([RESIZE]) + json.dumps({"rows": rows, "columns": columns}).encode())


class CallerStreams(Protocol):
    """What a command reads and writes on the caller's side."""

    async def feed(self, to: Input) -> None:
        """Hand the input on, until its end; is cancelled when the command has ended."""

    async def write(self, data: bytes, *, is_error: bool) -> None:
        """Write what the command has written to its output, or to its error output."""


async def run_command(opened: SessionTicket, ends: CallerStreams) -> CommandOutcome:
    """Raises SessionError if the session ends without a word about the command."""
    async with connected(opened) as socket:
        try:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(_fed(ends, Input(socket.send)))
                outcome = await _received(socket, ends)
                feeding.cancel()
                return outcome
        except BaseExceptionGroup as found:
            raise _first(found) from None


async def _fed(ends: CallerStreams, to: Input) -> None:
    """A command that ends quickly takes no input any more: what became of it is still to be received."""
    try:
        await ends.feed(to)
    except* SessionClosed:  # also of a group, in which a terminal's input and its size are sent
        pass


async def _received(socket: SessionSocket, ends: CallerStreams) -> CommandOutcome:
    while (message := await socket.receive()) is not None:
        if not message:
            continue
        channel, payload = message[0], message[1:]
        if channel in (STDOUT, STDERR):
            await ends.write(payload, is_error=channel == STDERR)
        elif channel == STATUS:
            return _outcome(payload)
    raise SessionError(socket.reason)


def _outcome(payload: bytes) -> CommandOutcome:
    try:
        status = read_status(payload)
    except BadAnswer as error:
        raise SessionError("the gateway sent a status that this version does not understand") from error
    return CommandOutcome(status.exit_code, status.signal or "", status.message)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of a session that ends, both directions may fail at once."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
