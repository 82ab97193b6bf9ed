"""An engine without a model: speaks HTTP on a Unix socket as engines do, and answers what the request says.

The text of the last message decides: ``say WORDS`` streams or answers the words, ``hang`` never answers, ``die`` closes
the connection before an answer, ``cut`` closes it within one, ``babble`` sends what is
no event after one and never ends, ``full`` is refused with 503, ``long`` with 400.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from tornado.web import Application, RequestHandler

CUT_SECONDS = 0.1  # what comes together with the end of its connection may be lost


@dataclass
class FakeEngine:
    """What it was asked, and what became of it; ``pause_seconds`` lies between the events of a stream."""

    name: str = "engine"
    pause_seconds: float = 0.0
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    hung_up: int = 0
    open: int = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body in self.requests]


class _Handler(RequestHandler):
    def initialize(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._gone = asyncio.Event()

    def prepare(self) -> None:
        self._engine.open += 1

    def on_finish(self) -> None:
        self._engine.open -= 1

    def on_connection_close(self) -> None:
        self._engine.hung_up += 1
        self._gone.set()

    def get(self) -> None:
        self.write({"status": "ok"})

    async def post(self) -> None:
        body = json.loads(self.request.body)
        if self.request.path == "/usage":
            known = any(headers.get("X-Request-Id") == body["request_id"] for headers, _ in self._engine.requests)
            self.write({"usage": {"prompt_tokens": 3, "completion_tokens": 2} if known else {}})
            return
        self._engine.requests.append((dict(self.request.headers), body))
        order, _, text = _text_of(body).partition(" ")
        if order == "hang":
            await self._gone.wait()
        elif order == "die":
            self._break()
        elif order == "babble":
            await self._babble()
        elif order in ("full", "long"):
            self._refuse(order)
        elif body.get("stream"):
            await self._stream(text.split(), cut=order == "cut", asked=body)
        else:
            await self._whole(text, cut=order == "cut")

    def _break(self) -> None:
        self._engine.open -= 1
        self.detach().close()

    def _refuse(self, order: str) -> None:
        status, message = (503, "no room for more") if order == "full" else (400, "the prompt has 9 of 8 tokens")
        self.set_status(status)
        self.write({"error": {"message": message, "type": "x", "param": None, "code": order}})

    async def _whole(self, text: str, *, cut: bool) -> None:
        count = len(text.split())
        usage = {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count}
        answer = {"model": self._engine.name, "choices": [{"message": {"content": text}}], "usage": usage}
        raw = json.dumps(answer).encode()
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Length", str(len(raw)))
        self.write(raw[:10] if cut else raw)
        await self.flush()
        if cut:
            self._break()

    async def _stream(self, words: list[str], *, cut: bool, asked: dict[str, Any]) -> None:
        self.set_header("Content-Type", "text/event-stream")
        for word in words:
            if self._gone.is_set():
                return
            self._event({"choices": [{"delta": {"content": word}}]})
            await self.flush()
            await asyncio.sleep(self._engine.pause_seconds)
        if cut:
            await asyncio.sleep(CUT_SECONDS)
            self._break()
            return
        assert asked["stream_options"]["include_usage"] is True
        self._event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(words)}})
        self.write("data: [DONE]\n\n")
        self.finish()

    async def _babble(self) -> None:
        self._event({"choices": [{"delta": {"content": "word"}}]})
        await self.flush()
        await asyncio.sleep(CUT_SECONDS)
        self.write('data: {"usage": {no JSON\n\n')
        await self.flush()
        await self._gone.wait()

    def _event(self, document: dict[str, Any]) -> None:
        self.write(f"data: {json.dumps(document)}\n\n")


def _text_of(body: dict[str, Any]) -> str:
    if "messages" in body:
        return str(body["messages"][-1]["content"])
    return str(body.get("prompt") or body.get("input"))


@contextmanager
def running(engine: FakeEngine, place: Path) -> Iterator[FakeEngine]:
    """Serve on this Unix socket, on a thread of its own."""
    ready, ended = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        server = HTTPServer(Application([(r"/.*", _Handler, {"engine": engine})], log_function=lambda _: None))
        server.add_socket(bind_unix_socket(str(place)))
        ready.set()
        await ended.wait()
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name=f"fake-{engine.name}")
    thread.start()
    ready.wait(10)
    try:
        yield engine
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(10)
        place.unlink(missing_ok=True)
