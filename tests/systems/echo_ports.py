"""A TCP server that sends back what it got, and what clients get from it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def echoing() -> Iterator[int]:
    """The port of a server that sends back all it gets, after its client's end, with a line behind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    got = b""
                    while data := connection.recv(65536):
                        got += data
                    connection.sendall(got + b"end")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def asked(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:

        def send() -> None:
            with contextlib.suppress(OSError):  # of a port that is refused; what was answered says so
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)
        sending.start()
        got = b""
        while part := connection.recv(65536):
            got += part
        sending.join()
        return got
