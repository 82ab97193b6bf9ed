"""Sends requests to the gateway, again while it can't answer; imported only for jobs that ask: http.client is large."""

import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from urllib.parse import urlsplit

from trainyard.protocol.channel import MAX_LINE_BYTES

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
GIVE_UP_SECONDS = 600.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 10.0
MOST_BYTES = MAX_LINE_BYTES - 1024  # of an answer as text within JSON, which leaves room for the rest of its line
_FOR_NOW = (429, 502, 503, 504)


class GatewayClient:
    """Thread-safe; each request has a connection of its own."""

    def __init__(self, url: str, token: str, *, silence_seconds: float) -> None:
        self._url = urlsplit(url)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._silence_seconds = silence_seconds
        self._closed = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def post(self, path: str, body: str) -> tuple[int, str]:
        """(status, JSON) of the answer; the last one, of a gateway that can't answer for ``GIVE_UP_SECONDS``."""
        until, wait = time.monotonic() + GIVE_UP_SECONDS, FIRST_WAIT_SECONDS
        while True:
            status, answer, asked_to_wait = self._tried(path, body)
            left = until - time.monotonic()
            if status not in _FOR_NOW or left <= 0:
                return status, answer
            if self._closed.wait(min(left, max(wait, asked_to_wait))):
                return 503, _error("the attempt ends")
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def close(self) -> None:
        """End all requests; the gateway notices it, and its replicas stop answering them."""
        self._closed.set()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError, AttributeError):  # not connected yet
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def _tried(self, path: str, body: str) -> tuple[int, str, float]:
        """(status, JSON, seconds that the gateway asks to wait)."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=CONNECT_SECONDS)
        with self._lock:
            self._open.add(connection)
        try:
            return self._exchanged(connection, path, body)
        except (OSError, http.client.HTTPException) as error:
            log.warning("the gateway has not answered: %s", error)
            return 503, _error(f"the gateway at {self._url.netloc} has not answered: {type(error).__name__}"), 0.0
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _exchanged(self, connection: http.client.HTTPConnection, path: str, body: str) -> tuple[int, str, float]:
        """Raises OSError and HTTPException."""
        connection.connect()
        connection.sock.settimeout(self._silence_seconds)
        if self._closed.is_set():
            return 503, _error("the attempt ends"), 0.0
        connection.request("POST", self._url.path.rstrip("/") + path, body.encode(), self._headers)
        response = connection.getresponse()
        content = response.read(MOST_BYTES + 1)
        answer = content.decode(errors="replace")
        if len(content) > MOST_BYTES or len(json.dumps(answer)) > MOST_BYTES:
            what = f"the answer has more than {MOST_BYTES} bytes on its way to the job; ask for less at a time"
            return 413, _error(what), 0.0
        wait = response.headers.get("Retry-After", "")
        return response.status, answer, float(wait) if wait.isdigit() else 0.0


def _error(message: str) -> str:
    return json.dumps({"error": {"message": message}})
