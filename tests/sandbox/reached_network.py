"""Makes a network of its own, in which services answer at addresses beyond the machine, and runs a script there."""

import fcntl
import os
import signal
import socket
import struct
import sys

from tests.sandbox.probes.network import ELSEWHERE, METADATA, PORTS, add_address

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("=16sH14x", b"lo", _IFF_UP))
    for address in ("127.0.0.1", METADATA, ELSEWHERE):
        add_address(address)
    server = serve_metadata()
    other_job = socket.create_server(("127.0.0.1", PORTS[0] + 1))
    os.environ.pop("PYTHONPATH")
    code = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, *sys.argv[1:]])
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    other_job.close()
    sys.exit(code)


def serve_metadata() -> int:
    """The pid of a process that answers all that connects."""
    with socket.create_server((METADATA, 80)) as listener:
        pid = os.fork()
        if pid:
            return pid
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")


if __name__ == "__main__":
    main()
