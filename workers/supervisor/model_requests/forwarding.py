"""Requests of ranks to models: which of them are passed on to the gateway, and how many at a time."""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from app.domain.spec.inference import OPENAI_ENDPOINTS
from trainyard.protocol.commands import ModelAnswered
from trainyard.protocol.json import JSON
from trainyard.protocol.messages import AskModel

log = logging.getLogger(__name__)

MOST_AT_ONCE = 32  # requests at the gateway
MOST_WAITING = 1024  # others; a rank may send any number
MOST_WAITING_BYTES = 64 << 20
DELIVERY_SECONDS = 1.0  # between two checks whether a rank that does not read its answers may be forgotten

# Gives an answer to the rank that asked; calls the second argument once it is sent. From any thread. None: a refusal of
# one request too many, for which nothing waits and of which there may be any number.
Deliver = Callable[[ModelAnswered, Callable[[], None] | None], None]


class Gateway(Protocol):
    """What sends a request, and has its answer as (status, JSON)."""

    def post(self, path: str, body: str) -> tuple[int, str]: ...

    def close(self) -> None: ...


class ModelRequestRefused(Exception):
    """A request that is not passed on; its status is that of HTTP which says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = status


class ModelRequests:
    """Thread-safe. Threads of its own wait for the gateway, and for ranks to read their answers."""

    def __init__(self, models: Collection[str], connect: Callable[[], Gateway]) -> None:
        """``models`` are those that the job's document names; ``connect`` is called for the first request."""
        self._models = models
        self._connect = connect
        self._gateway: Gateway | None = None
        self._waiting: deque[tuple[AskModel, Deliver]] = deque()
        self._bytes = 0  # of the requests that wait
        self._threads = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def ask(self, request: AskModel, deliver: Deliver) -> None:
        """Returns at once."""
        with self._lock:
            is_full = len(self._waiting) >= MOST_WAITING or self._bytes + len(request.body) > MOST_WAITING_BYTES
            if not is_full:
                self._waiting.append((request, deliver))
                self._bytes += len(request.body)
                self._begin_thread()
        if is_full:
            deliver(refusal(request, 429, "as many requests wait for models as may; send fewer at a time"), None)

    def close(self) -> None:
        """Send no more, and end what is at the gateway; threads end soon after."""
        with self._lock:
            self._closed.set()
            self._waiting.clear()
            gateway = self._gateway
        if gateway is not None:
            gateway.close()

    def _begin_thread(self) -> None:
        if self._threads < MOST_AT_ONCE and not self._closed.is_set():
            self._threads += 1
            threading.Thread(target=self._serve, name="model-requests", daemon=True).start()

    def _serve(self) -> None:
        while (taken := self._next()) is not None:
            request, deliver = taken
            try:
                answer = self._answered(request)
            except Exception as error:
                log.exception("a request to a model could not be sent")
                answer = refusal(request, 502, f"it could not be sent: {type(error).__name__}")
            sent = threading.Event()
            deliver(answer, sent.set)
            while not sent.wait(DELIVERY_SECONDS) and not self._closed.is_set():
                pass

    def _next(self) -> tuple[AskModel, Deliver] | None:
        """None: the thread ends."""
        with self._lock:
            if self._closed.is_set() or not self._waiting:
                self._threads -= 1
                return None
            request, deliver = self._waiting.popleft()
            self._bytes -= len(request.body)
            return request, deliver

    def _answered(self, request: AskModel) -> ModelAnswered:
        try:
            body = self._checked(request)
        except ModelRequestRefused as error:
            return refusal(request, error.http_status, str(error))
        with self._lock:
            if self._closed.is_set():  # since the request was taken; nothing would close a gateway of now
                return refusal(request, 503, "the attempt ends")
            self._gateway = gateway = self._gateway or self._connect()
        status, answer = gateway.post(request.path, body)
        return ModelAnswered(number=request.number, status=status, body=answer)

    def _checked(self, request: AskModel) -> str:
        """The body as it is sent, written anew: the gateway reads what was checked. Raises ModelRequestRefused."""
        if request.path not in OPENAI_ENDPOINTS:
            raise ModelRequestRefused(404, f"no path {request.path[:100]}; known: {', '.join(OPENAI_ENDPOINTS)}")
        body = _parsed(request.body)
        model = body.get("model")
        if not isinstance(model, str) or model not in self._models:
            named = (
                f"its document names {', '.join(sorted(self._models))}" if self._models else "its document names none"
            )
            raise ModelRequestRefused(403, f"the job may not ask {str(model)[:100]}: {named}")
        if body.get("stream"):
            raise ModelRequestRefused(400, "a job gets whole answers; leave stream out")
        return json.dumps(body)


def refusal(request: AskModel, status: int, message: str) -> ModelAnswered:
    body = json.dumps({"error": {"message": message}})
    return ModelAnswered(number=request.number, status=status, body=body)


def _parsed(text: str) -> dict[str, JSON]:
    """Raises ModelRequestRefused."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelRequestRefused(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise ModelRequestRefused(400, "the body must be a JSON object")
    return body
