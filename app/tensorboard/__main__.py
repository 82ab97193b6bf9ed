"""The TensorBoard server of all jobs, run by `trainyard tensorboard`; each job requires its own token."""

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import sys

from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from app.host.privacy import hide_from_same_user
from app.storage.storage import Storage
from app.tensorboard.boards import REFRESH_SECONDS, Boards
from app.tensorboard.server import application
from config.settings import Settings, SettingsError, load_settings

MAX_CONCURRENT_REQUESTS = 200  # proxied at a time; more wait
MAX_BODY_BYTES = 2**20  # request bodies hold names of runs and tags


def main() -> None:
    hide_from_same_user()
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.exit(str(error))
    if not settings.security.secret_key:
        sys.exit(
            "there is no secret key yet to verify tokens: start the API first, or set TRAINYARD_SECURITY_SECRET_KEY"
        )
    logging.basicConfig(level=settings.log.level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    AsyncHTTPClient.configure(None, max_clients=MAX_CONCURRENT_REQUESTS)
    listener = socket.socket(fileno=int(sys.argv[1])) if len(sys.argv) > 1 else None
    asyncio.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    mine = settings.tensorboard
    directory = settings.data.dir / "run" / "boards"
    shutil.rmtree(directory, ignore_errors=True)  # of a server that was killed
    boards = Boards(Storage(settings.storage.url), directory, most=mine.most, idle_seconds=mine.idle_seconds)
    server = HTTPServer(application(settings, boards), max_body_size=MAX_BODY_BYTES)
    if listener is not None:
        listener.setblocking(False)
        server.add_sockets([listener])
    else:
        server.add_sockets(bind_sockets(mine.port, mine.host))
    try:
        while not ended.is_set():
            await boards.tend()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), REFRESH_SECONDS)
    finally:
        server.stop()
        await boards.close()


if __name__ == "__main__":
    main()
