"""A gateway as a process, run by `trainyard gateway`; the first argument may be the number of an open socket."""

import asyncio
import gc
import signal
import socket
import sys

from tornado.netutil import bind_sockets

from app.gateway.server import GatewayServer, plane_of
from app.host.privacy import hide_from_same_user
from app.host.process_options import allow_open_files
from app.migrations.versioning import wait_until_current
from config.logging import configure_logging, log_crashes
from config.redaction import Redaction
from config.secrets import secrets_of
from config.settings import Settings, SettingsError, load_settings
from config.values.rules import redis_url

_FILES = 1 << 16  # connections, and pipes of those whose other side does not read
# After which a thread that reads the database gives the event loop the interpreter; Python's default is 5 ms.
_SWITCH_SECONDS = 0.0005


def main() -> None:
    hide_from_same_user()
    allow_open_files(_FILES)
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.exit(str(error))
    try:
        redis_url(settings.broker.url)  # its client is loaded at the first wrong key: too late to notice
    except ValueError as error:
        sys.exit(f"TRAINYARD_BROKER_URL: {error}")
    if not settings.security.secret_key:
        sys.exit("there is no secret key yet: start the API first, or set TRAINYARD_SECURITY_SECRET_KEY")
    configure_logging(settings.log.level, process="gateway", redaction=Redaction(secrets_of(settings)))
    log_crashes()
    listener = socket.socket(fileno=int(sys.argv[1])) if len(sys.argv) > 1 else None
    asyncio.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket | None) -> None:
    """Serve until SIGTERM or SIGINT; then answers may end."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    plane = plane_of(settings)
    await asyncio.to_thread(wait_until_current, plane.db.engine)
    server = GatewayServer(settings, plane)
    if listener is not None:
        listener.setblocking(False)
        server.http.add_sockets([listener])
    else:
        server.http.add_sockets(bind_sockets(settings.gateway.port, settings.gateway.host))
    server.start()
    gc.collect()
    gc.freeze()  # what was imported stays: looking through it takes tens of milliseconds, in which no event passes
    sys.setswitchinterval(_SWITCH_SECONDS)
    await ended.wait()
    await server.close(seconds=settings.gateway.drain_seconds)
    plane.db.close()


if __name__ == "__main__":
    main()
