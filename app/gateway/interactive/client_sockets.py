"""Whether the client of a connection is still there, also while nothing is read of it: its job may read nothing."""

import fcntl
import socket
import struct
import sys
import termios

from tornado.iostream import IOStream

_LIVENESS = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
_ENDED = (7, 8)  # TCP_CLOSE and TCP_CLOSE_WAIT of Linux: the other side sends no more


def watch(stream: IOStream | None) -> None:
    """Let the kernel ask now and then; also a client whose last bytes are not read is missed then."""
    if stream is None or stream.closed():
        return
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _LIVENESS.items():
        stream.socket.setsockopt(socket.IPPROTO_TCP, option, value)


def reset(stream: IOStream) -> None:
    """Close it at once. A plain end would wait behind bytes that the other side does not read."""
    if not stream.closed():
        resets(stream.socket)
    stream.close()


def resets(connection: socket.socket) -> None:
    """Let its close be a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def unsent(connection: socket.socket | None) -> int:
    """Bytes that the kernel holds, because the other side has not taken them."""
    if connection is None or connection.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def has_left(connection: socket.socket | None) -> bool:
    if connection is None or connection.fileno() < 0:
        return True
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _ENDED


def of(stream: IOStream | None) -> socket.socket | None:
    """None once it is closed."""
    return None if stream is None or stream.closed() else stream.socket
