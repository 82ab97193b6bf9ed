"""Connections to ports of a job: each is an interactive session of its own, with the bytes as they are."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from app.cli.client.interactive.session_socket import CHUNK_BYTES, SessionError, SessionSocket, SessionTicket, connected


async def carry(opened: SessionTicket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until the job's side ends; the end of ours is an empty message.

    Raises SessionError for a port that cannot be reached.
    """
    async with connected(opened) as socket:
        sending = asyncio.create_task(_send(reader, socket))
        receiving = asyncio.create_task(_receive(socket, writer))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if not _is_broken(sending):
                await asyncio.wait({receiving})
            if _is_broken(sending) or _is_broken(receiving):  # the program here is gone
                return
            receiving.result()
        finally:
            sending.cancel()
            receiving.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
        if socket.has_failed:
            raise SessionError(socket.reason)


def _is_broken(task: "asyncio.Task[None]") -> bool:
    return task.done() and not task.cancelled() and isinstance(task.exception(), ConnectionError)


async def _receive(socket: SessionSocket, writer: asyncio.StreamWriter) -> None:
    while (message := await socket.receive()) is not None:
        writer.write(message)
        await writer.drain()


async def _send(reader: asyncio.StreamReader, socket: SessionSocket) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await socket.send(data)
    await socket.send(b"")


async def serve(
    host: str, port: int, opener: Callable[[], Awaitable[SessionTicket]], failed: Callable[[Exception], None]
) -> asyncio.Server:
    """Listen on this machine; each connection becomes one to the job. ``failed`` hears of those that fail."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await carry(await opener(), reader, writer)
        except Exception as error:  # noqa: BLE001 – one connection fails, the others continue
            failed(error)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    return await asyncio.start_server(connect, host, port, limit=CHUNK_BYTES)
