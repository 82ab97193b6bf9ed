"""A small real HTTP server that gives each request the next answer of a script."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.doubles.http_servers import QuietHandler, answering

Answer = Callable[["Handler"], None]


class Handler(QuietHandler, BaseHTTPRequestHandler):
    """Gives each request the next answer of the script; the last one is repeated."""

    server: "ScriptedServer"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.server.seen.append((self.command, self.path, self.headers, self.rfile.read(length)))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 – the base class calls them by these names


class ScriptedServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, str, Message, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def script(self, *answers: Answer) -> None:
        self.answers = list(answers)


def success(data: Any, status: int = 200) -> Answer:
    body = json.dumps({"status": "success", "data": data, "meta": {"request_id": "req_1"}}).encode()
    return lambda handler: handler.reply(status, body, "application/json")


def failure(status: int, error: dict[str, Any]) -> Answer:
    body = json.dumps({"status": "error", "error": error, "meta": {"request_id": "req_2"}}).encode()
    return lambda handler: handler.reply(status, body, "application/json")


def stream(text: str) -> Answer:
    return lambda handler: handler.reply(200, text.encode(), "text/event-stream")


def drop(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.close()


@contextmanager
def running() -> Iterator[ScriptedServer]:
    """A server that answers while the block runs."""
    with answering(ScriptedServer()) as server:
        yield server
