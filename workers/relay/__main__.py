"""The process of a relay: ``python -m workers.relay PARENT``, started by a supervisor with this pid.

It gets its configuration as JSON on stdin, so that no process list shows the token, and writes a line of JSON with its
port to stdout once it listens. It imports little, because people may wait for it.
"""

import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from app.host.privacy import hide_from_same_user
from app.host.process_options import allow_open_files, die_with_parent, prctl
from workers.rank.sessions.loop import EpollLoop
from workers.relay.relay import LOCAL_BYTES, MOST_CONNECTIONS, MOST_STRANGERS, Relay

_PR_SET_NO_NEW_PRIVS = 38
BACKLOG = 512
FINISH_SECONDS = 2.0  # the engine has ended then, or is not waited for
_FILES = 6 * MOST_CONNECTIONS + MOST_STRANGERS + 64


def listening(address: str) -> socket.socket:
    """A listener at a free port of this address; of all addresses where the machine itself does not have it, as behind
    address translation. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return _bound(address, family)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return _bound("", family)


def _bound(address: str, family: socket.AddressFamily) -> socket.socket:
    return socket.create_server((address, 0), family=family, backlog=BACKLOG)


def listening_locally(path: str) -> socket.socket | None:
    """A listener for gateways of this machine at this path, which its owner alone may connect to; an earlier relay's is
    replaced. None where it can't be made, or the kernel allows less than half of the buffer (net.core.wmem_max) and TCP
    is the faster way.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_BYTES)
    try:
        if listener.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < LOCAL_BYTES:  # it counts twice what was set
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        _bind(listener, *os.path.split(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        return None
    return listener


def _bind(listener: socket.socket, folder: str, name: str) -> None:
    """Raises OSError."""
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        listener.bind(f"/proc/self/fd/{directory}/{name}")  # the path itself may be too long
    finally:
        os.close(directory)


def _on_sigterm(loop: EpollLoop, callback: Callable[[], None]) -> socket.socket:
    """The socket has to be kept."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def woken() -> None:
        reader.recv(64)
        callback()

    watched = loop.watch(reader.fileno())
    watched.on_readable = woken
    watched.want(reads=True, writes=False)
    return writer


def main() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    die_with_parent(int(sys.argv[1]))
    hide_from_same_user()
    allow_open_files(_FILES)
    configuration = json.load(sys.stdin)
    directory, name = os.path.split(configuration["socket"])
    loop = EpollLoop()
    relay = Relay(
        loop,
        configuration["token"],
        os.open(directory, os.O_PATH | os.O_DIRECTORY),
        name,
        what=configuration["what"],
        hands_over=configuration["hands_over"],
    )
    os.umask(0o077)
    local = listening_locally(configuration["local"]) if configuration["local"] else None
    with listening(configuration["address"]) as listener, local or contextlib.nullcontext():
        relay.serve(listener)
        if local is not None:
            relay.serve(local)
        waker = _on_sigterm(loop, lambda: relay.finish(FINISH_SECONDS))
        sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        with waker:
            loop.run()


if __name__ == "__main__":
    main()
