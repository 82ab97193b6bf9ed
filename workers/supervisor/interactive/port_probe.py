"""Asks a port of a job whether it answers, through the relay and the session server, as a gateway would."""

import json
import re
import socket
import time
from dataclasses import dataclass
from urllib.parse import quote

from app.domain.spec.interactive import ReadinessProbe
from trainyard.protocol.session_answers import BadAnswer, read_answer
from workers.supervisor.serving.probe import NoAnswer, greet, read_line

NOTEBOOK = 0  # the port by which the session server knows the notebook's
_STATUS = re.compile(r"HTTP/1\.[01] (\d{3})(?: |$)")
_SUCCESS = range(200, 400)
_UNCHANGED = "/?&=%:@!$'()*+,;~"  # in a path


@dataclass(frozen=True, kw_only=True)
class Way:
    """The relay of the job's session server."""

    address: str
    port: int
    token: str


class Final(NoAnswer):
    """It will not answer later, either."""


def ask(way: Way, probe: ReadinessProbe) -> None:
    """Raises NoAnswer unless the port can be connected to and, where a path is asked, answers it with 200 to 399."""
    with_path = "" if probe.path is None else probe.path
    connect(way, probe.port, seconds=probe.timeout_seconds, path=with_path)


def connect(way: Way, port: int, *, seconds: float, path: str = "") -> None:
    """The same, within this time as a whole."""
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((way.address, way.port), timeout=seconds) as connection:
            greet(connection, way.token, until)
            connection.sendall(json.dumps({"type": "connect", "port": port}).encode() + b"\n")
            _check_started(read_line(connection, until))
            if path:
                connection.sendall(_request(path, port))
                _check_status(path, read_line(connection, until))
    except TimeoutError as error:
        raise NoAnswer(f"port {port} does not answer within {seconds:g} s") from error
    except OSError as error:
        raise NoAnswer(f"port {port}: {error.strerror or error}") from error


def _check_started(line: str) -> None:
    try:
        refusal = read_answer(line)
    except BadAnswer as error:
        raise NoAnswer("the session server does not answer") from error
    if refusal is not None:
        raise (Final if refusal.final else NoAnswer)(refusal.message)


def _request(path: str, port: int) -> bytes:
    lines = [
        f"GET {quote(path, safe=_UNCHANGED)} HTTP/1.1",
        f"Host: localhost:{port}",
        "User-Agent: trainyard-readiness",
        "Accept: */*",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def _check_status(path: str, line: str) -> None:
    status = _STATUS.match(line)
    if status is None:
        raise NoAnswer(f"GET {path} is not answered in HTTP")
    if int(status[1]) not in _SUCCESS:
        raise NoAnswer(f"GET {path} is answered with {status[1]}")
