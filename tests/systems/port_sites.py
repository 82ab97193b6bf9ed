"""A gateway that serves ports of jobs: real relays, real session servers, and web servers as jobs run them."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from app.database.engine import Database
from app.domain.port_addresses import PortAddress, PortsHost
from app.models import Job
from app.security import signed_tokens
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.interactive.ports import TOKEN_PURPOSE
from tests.builders.factories import make_document
from tests.systems.apps import SECRET_KEY
from tests.systems.gateways import SECONDS, Answer
from tests.systems.servers import free_port
from tests.systems.session_sites import SessionSite

PATHS, HOSTS = "http://jobs.localhost", "http://*.jobs.localhost"


class PortSite(SessionSite):
    """``mode``: PATHS, on a machine other than the gateway's, or HOSTS, on the same."""

    def __init__(self, database: Database, folder: Path, mode: str = PATHS, **settings: str) -> None:
        port = free_port()
        self.is_nearby = mode == HOSTS
        self.ports_url = f"{mode}:{port}"
        given = {"TRAINYARD_GATEWAY_PORT": str(port), "TRAINYARD_GATEWAY_PORTS_URL": self.ports_url, **settings}
        super().__init__(database, folder, **given)
        created = api_keys.create(
            database, SecretBox(SECRET_KEY), role=Role.USER, project="default", name="Ada Lovelace"
        )
        self.user, self.user_key = created.row.id, created.key

    def opened(self, port: int, *, name: str = "web", **changes: Any) -> "ServedPort":  # type: ignore[override]
        """A running job whose document names this port."""
        config = {"ports": [{"name": name, "port": port, **changes}]}
        document = make_document(interactive_config=config)
        sandbox = self.sandbox(document=document)
        return ServedPort(self, PortsHost(self.ports_url).address(sandbox.job_id, name))


class ServedPort:
    """A port at the gateway, as a browser with a cookie, or with a key, asks it."""

    def __init__(self, site: PortSite, address: PortAddress) -> None:
        self.site, self.address = site, address
        self.prefix = address.prefix

    def token(self, *, name: str = "", job_id: str = "", key_id: str = "", seconds: int = 60) -> str:
        subject = "/".join((job_id or self.address.job_id, name or self.address.name, key_id or self.site.user))
        return signed_tokens.issue(SECRET_KEY, TOKEN_PURPOSE, subject, seconds=seconds)

    @property
    def cookie(self) -> str:
        return f"trainyard-port={self.token()}"

    def ask(
        self, method: str = "GET", path: str = "/", body: Any = None, *, cookie: str | None = None, **headers: str
    ) -> Answer:
        """``path``: behind the prefix."""
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=SECONDS)
        sent = {"Host": self.address.host, "Cookie": self.cookie if cookie is None else cookie, **headers}
        try:
            connection.request(method, self.prefix + path, body, sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def raw(self, head: str, body: bytes = b"", *, cookie: str | None = None) -> bytes:
        """All that the gateway answers to these bytes; Host and cookie are added to the lines of ``head``."""
        first, *rest = head.split("\n")
        cookies = self.cookie if cookie is None else cookie
        lines = [first, f"Host: {self.address.host}", *([f"Cookie: {cookies}"] if cookies else []), *rest]
        with socket.create_connection(("127.0.0.1", self.site.port), timeout=SECONDS) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)
            heard = b""
            while piece := connection.recv(65536):
                heard += piece
            return heard


class EchoHandler(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else self._chunks()
        asked = {
            "method": self.command,
            "path": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "body": body.decode("latin-1"),
        }
        content = json.dumps(asked).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_GET  # noqa: N815 – the names that are called

    def _chunks(self) -> bytes:
        found = b""
        while self.headers.get("Transfer-Encoding") == "chunked" and (size := int(self.rfile.readline(), 16)):
            found += self.rfile.read(size)
            self.rfile.readline()
        return found

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 – the name that it has there
        del format, args


@contextmanager
def echoing() -> Iterator[int]:
    """The port of a web server that answers with what it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EchoHandler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="echo")
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def talking(talk: Callable[[socket.socket, bytes], None]) -> Iterator[int]:
    """The port of a server that does with each connection, and the head of its request, what the function does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heard = b""
                    while b"\r\n\r\n" not in heard and (piece := connection.recv(65536)):
                        heard += piece
                    if heard:
                        talk(connection, heard)

        thread = threading.Thread(target=serve, name="talking")
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def saying(answer: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda connection, _: connection.sendall(answer)


def end_job(site: PortSite, job_id: str, **columns: Any) -> None:
    with site.db.write() as session:
        row = session.get_one(Job, job_id)
        for column, value in columns.items():
            setattr(row, column, value)
