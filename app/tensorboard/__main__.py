"""TensorBoard of every job, each behind a token of its own: what `trainyard tensorboard` becomes."""

import asyncio
import logging
import signal
import socket
import sys
import tempfile
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from app.storage.storage import Storage
from app.tensorboard.boards import REFRESH_SECONDS, Boards
from app.tensorboard.server import application
from config.privacy import hide_from_same_user
from config.settings import Settings, SettingsError, load_settings

logger = logging.getLogger(__name__)


def main() -> None:
    hide_from_same_user()
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.exit(str(error))
    if not settings.security.secret_key:
        sys.exit("there is no secret key yet, by which tokens are made: start the API first, or name the same one here")
    logging.basicConfig(level=settings.log.level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("tornado.access").setLevel(logging.ERROR)  # what is asked for has tokens in it
    listener = socket.socket(fileno=int(sys.argv[1])) if len(sys.argv) > 1 else None
    asyncio.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket | None) -> None:
    """Until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    mine = settings.tensorboard
    with tempfile.TemporaryDirectory(prefix="trainyard-boards-") as directory:
        storage = Storage(settings.storage.url)
        boards = Boards(storage, Path(directory), most=mine.most, idle_seconds=mine.idle_seconds)
        server = HTTPServer(application(settings, boards))
        if listener is not None:
            listener.setblocking(False)
            server.add_sockets([listener])
        else:
            server.add_sockets(bind_sockets(mine.port, mine.host))
        try:
            await _tended(boards, ended)
        finally:
            server.stop()
            await boards.close()


async def _tended(boards: Boards, ended: asyncio.Event) -> None:
    while not ended.is_set():
        try:
            await boards.tend()
        except Exception:  # a storage that does not answer now may do so later
            logger.exception("event files were not copied")
        try:
            await asyncio.wait_for(ended.wait(), REFRESH_SECONDS)
        except TimeoutError:
            continue


if __name__ == "__main__":
    main()
