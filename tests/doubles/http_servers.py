"""What HTTP servers of tests share: a handler that logs nothing, and a thread that serves while a block runs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any, TypeVar

Server = TypeVar("Server", bound=BaseServer)


class QuietHandler(BaseHTTPRequestHandler):
    """A base of handlers."""

    def reply(self, status: int, body: bytes = b"", kind: str | None = None, **headers: str) -> None:
        self.send_response(status)
        if kind is not None:
            self.send_header("Content-Type", kind)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_json(self, status: int, body: dict[str, Any]) -> None:
        self.reply(status, json.dumps(body).encode(), "application/json")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – the base class names it so
        pass


@contextmanager
def answering(server: Server) -> Iterator[Server]:
    """The server answers while the block runs."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
