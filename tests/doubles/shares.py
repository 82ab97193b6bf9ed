"""A drive service behind HTTP for tests: files are PUT, listed and read back with the user's token."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.doubles.http_servers import QuietHandler, answering

TOKEN = "token-of-the-user"


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server: "Share"

    def do_GET(self) -> None:
        path = unquote(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, path))
        status = self.server.broken.pop(0) if self.server.broken else 0
        if status:
            self.reply(status)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.reply(401)
        elif self.command == "PUT":
            self._put(path, body)
        elif self.command == "DELETE":
            self.reply(204 if self.server.files.pop(path, None) is not None else 404)
        elif path in self.server.files:
            self.reply(200, self.server.files[path])
        elif path.endswith("/?list") and (files := self.server.below(path.removeprefix("/shares/")[: -len("/?list")])):
            self.reply(200, listed(files))
        else:
            self.reply(404)

    do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815 – the base class calls them by these names

    def _put(self, path: str, body: bytes) -> None:
        if self.headers.get("If-None-Match") == "*" and path in self.server.files:
            self.reply(412)
            return
        self.server.files[path] = self.server.spoil(path, body)
        self.reply(201)


def listed(files: dict[str, bytes]) -> bytes:
    entries = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in files.items()
    ]
    return json.dumps({"files": entries}).encode()


class Share(ThreadingHTTPServer):
    """``files`` by path; ``broken`` are the statuses of the next answers, 0 for a good one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.seen: list[tuple[str, str]] = []
        self.broken: list[int] = []
        self.spoiled: set[str] = set()  # paths of which the next upload loses its last byte

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/shares"

    def spoil(self, path: str, body: bytes) -> bytes:
        if path not in self.spoiled:
            return body
        self.spoiled.discard(path)
        return body[:-1]

    def below(self, directory: str) -> dict[str, bytes]:
        """What lies in a directory, by relative path."""
        prefix = f"/shares/{directory}/"
        return {path.removeprefix(prefix): data for path, data in self.files.items() if path.startswith(prefix)}


@contextmanager
def running_share() -> Iterator[Share]:
    """A service that answers while the block runs."""
    with answering(Share()) as share:
        yield share
