"""A company's HTTP proxy: the only process that knows where its hosts are, which is loopback in every case."""

import base64
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class CompanyProxy:
    """``asked``: the ``host:port`` of each request; ``login``: USER:PASSWORD that it wants, if any."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[str] = []
        self.login = ""
        self.status = "200 OK"  # of its answers to CONNECT

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._handle, client)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, function: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=function, args=arguments, daemon=True))
        self._threads[-1].start()

    def _handle(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            method, target, _ = head.decode().split(" ", 2)
            place = urlsplit(f"//{target}" if method == "CONNECT" else target)
            self.asked.append(f"{place.hostname}:{place.port}")
            expected = base64.b64encode(self.login.encode()).decode()
            if self.login and f"Proxy-Authorization: Basic {expected}\r\n" not in head.decode():
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            if method == "CONNECT" and not self.status.startswith("200"):
                client.sendall(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
                return
            with socket.create_connection(("127.0.0.1", place.port or 80), timeout=10) as server:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
                    server.sendall(head.replace(target.encode(), path.encode(), 1))
                self._start(_copy, client, server)
                _copy(server, client)


@contextmanager
def company_proxy() -> Iterator[CompanyProxy]:
    proxy = CompanyProxy()
    serving = threading.Thread(target=proxy.serve)
    serving.start()
    try:
        yield proxy
    finally:
        proxy.close()
        serving.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
