"""An HTTP server for tests whose every answer is a function of the request; it remembers what it was asked."""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import quote

Answer = Callable[["Handler"], None]


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class WebServer:
    """``server.answers["/path"] = file(b"…")``; everything else is 404."""

    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.closing = threading.Event()
        self._server = _Listener(("127.0.0.1", 0), Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path.partition("?")[0] == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    owner: WebServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Some tests are about clients that disconnect."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        seen = Seen(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.owner.seen.append(seen)
        self.server.owner.answers.get(self.path.partition("?")[0], status(404))(self)

    do_HEAD = do_POST = do_GET  # noqa: N815 – the names are http.server's

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        """Underscores in names of headers stand for dashes."""
        self.head(code, Content_Length=str(len(body)), **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def status(code: int, **headers: str) -> Answer:
    return lambda handler: handler.answer(code, b"", **headers)


def redirect(to: str, code: int = 302) -> Answer:
    return status(code, Location=to)


def file(body: bytes, **headers: str) -> Answer:
    """A file with whatever headers; conditions are understood when it has an ETag."""

    def answer(handler: Handler) -> None:
        etag = headers.get("ETag")
        if etag is not None and handler.headers.get("If-None-Match") == etag:
            handler.answer(304, ETag=etag)
        else:
            handler.answer(200, body, **headers)

    return answer


def listing(*entries: object) -> Answer:
    """A directory of a drive service, as it is asked for with ``?list``."""
    return lambda handler: handler.answer(200, json.dumps({"files": entries}).encode())


def directory(at: str, files: Mapping[str, bytes], listed: Collection[str] = ("sha256", "etag")) -> dict[str, Answer]:
    """The answers of a drive service for a directory at this path, whose listing has these fields of each file."""
    sums = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
    etags = {name: f'"{digest[:8]}"' for name, digest in sums.items()}
    entries = [
        {"path": name, "size": len(body)}
        | {key: value for key, value in {"sha256": sums[name], "etag": etags[name]}.items() if key in listed}
        for name, body in files.items()
    ]
    headers = {name: {"ETag": etags[name]} if "etag" in listed else {} for name in files}
    return {f"{at}/": listing(*entries)} | {
        f"{at}/{quote(name)}": file(body, **headers[name]) for name, body in files.items()
    }
