"""A proxy on loopback for a program that resolves names by itself, such as git: only allowed addresses are connected.

It takes CONNECT alone, from those who know its password, and lives as long as one download.
"""

import base64
import hmac
import re
import secrets
import selectors
import socket
import threading
from contextlib import closing
from types import TracebackType
from typing import Self

from app.domain.spec.locations.outbound_proxy import SETTING, OutboundProxy
from workers.fetching.addresses import GuardedSockets
from workers.fetching.outbound import ProxyRefuses, connected, may_leave

_REQUEST = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]{1,253}):(\d{1,5}) HTTP/1\.[01]\r\n")
_LOGIN = re.compile(rb"\r\nproxy-authorization: basic ([a-z0-9+/=]+)\r\n", re.IGNORECASE)
_USER = "trainyard"
_MOST_HEAD_BYTES = 8192
_CONNECT_SECONDS = 30.0
_IDLE_SECONDS = 600.0


class ConnectProxy:
    """As a context manager: ``url`` is where it listens, with a login; ``refused``: an address was not allowed.

    ``outbound`` is the proxy that is connected to instead, if there is one; ``trouble``: it did not connect.
    """

    def __init__(self, allow: tuple[str, ...], outbound: OutboundProxy | None = None) -> None:
        self._allow, self._outbound = allow, outbound
        self._password = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.refused = False
        self.trouble = ""

    @property
    def url(self) -> str:
        return f"http://{_USER}:{self._password}@127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, name="connect-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes its thread
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        with closing(client):
            try:
                client.settimeout(_CONNECT_SECONDS)
                head = _head(client)
                asked = _REQUEST.match(head)
                if asked is None:
                    client.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
                    return
                if not self._is_known(head):
                    client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                    return
                server = self._connected(asked[1].decode("ascii", "replace").strip("[]"), int(asked[2]))
                if server is None:
                    client.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                    return
                with closing(server):
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    _relay(client, server)
            except OSError:
                return

    def _is_known(self, head: bytes) -> bool:
        """Other processes of this machine could reach hosts that only downloads are allowed."""
        login = _LOGIN.search(head)
        expected = base64.b64encode(f"{_USER}:{self._password}".encode())
        return login is not None and hmac.compare_digest(login[1], expected)

    def _connected(self, host: str, port: int) -> socket.socket | None:
        if self._outbound is not None and self._outbound.is_for(host):
            return self._through(self._outbound, host, port)
        gate = GuardedSockets(self._allow)
        gate.host, gate.port = host.lower().rstrip("."), port
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return None
        for info in infos:
            try:
                connection = gate.socket(info)
            except OSError:
                continue
            try:
                connection.settimeout(_CONNECT_SECONDS)
                connection.connect(info[4])
            except OSError:
                connection.close()
                continue
            return connection
        self.refused = self.refused or gate.refused
        return None

    def _through(self, proxy: OutboundProxy, host: str, port: int) -> socket.socket | None:
        if not may_leave(host, port, self._allow):
            self.refused = True
            return None
        try:
            return connected(proxy, host, port, seconds=_CONNECT_SECONDS)
        except OSError as error:
            self.trouble = str(error) if isinstance(error, ProxyRefuses) else f"the proxy of {SETTING}: {error}"
            return None


def _head(client: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MOST_HEAD_BYTES:
        piece = client.recv(4096)
        if not piece:
            break
        head += piece
    return head


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Until both have ended, or nothing comes for long."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while selector.get_map():
            ready = selector.select(_IDLE_SECONDS)
            if not ready:
                return
            for key, _ in ready:
                source, target = key.fileobj, key.data
                assert isinstance(source, socket.socket)  # noqa: S101 – for the type checker
                piece = source.recv(1 << 16)
                if piece:
                    target.sendall(piece)
                else:
                    selector.unregister(source)
                    target.shutdown(socket.SHUT_WR)
