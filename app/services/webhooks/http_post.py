"""One POST to a receiver: to a validated address, without redirects, and with a total deadline.

Imported only by the delivery, never by supervisors. Receivers may be hostile: only the status and one header of the
response are used, and the deadline covers everything.
"""

import contextlib
import errno
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from app.domain.spec.locations.hosts import address_of, is_allowed, is_public
from app.domain.webhooks import ALLOW_SETTING

_NEVER_ANSWERED = "nothing that is HTTP came back"
_BODY_BYTES = 65_536
_BODY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Posted:
    """The result of a POST. ``problem`` is empty on success; ``status_code`` is None without a response."""

    status_code: int | None = None
    problem: str = ""
    retry_after_seconds: int = 0


@dataclass(frozen=True, kw_only=True)
class PostRules:
    """``allow``: permitted private hosts and networks. The timeout covers name resolution to response."""

    allow: tuple[str, ...]
    timeout_seconds: float


class _PrivateAddress(Exception):
    """Every address of the host is private and not permitted."""


def post(url: str, body: bytes, headers: Mapping[str, str], rules: PostRules) -> Posted:
    """Send the body. Never raises for failures of the receiver, its name or the network."""
    deadline = time.monotonic() + rules.timeout_seconds
    try:
        parts = urlsplit(url)
        with contextlib.closing(_connect(parts, rules.allow, deadline)) as sock:
            _send(sock, _request(parts, body, headers), deadline)
            return _judge(*_answer(sock, deadline))
    except _PrivateAddress:
        problem = (
            "its host resolves to a loopback, link-local or private address; use a public one, or have the operator "
            f"add it to {ALLOW_SETTING}"
        )
    except TimeoutError:
        problem = f"no answer within {rules.timeout_seconds:g} seconds"
    except ssl.SSLCertVerificationError as error:
        problem = f"its certificate is not accepted: {error.verify_message}"
    except ssl.SSLError as error:
        problem = f"TLS failed: {error.reason or type(error).__name__}"
    except socket.gaierror:
        problem = "its host name cannot be resolved"
    except http.client.HTTPException:
        problem = _NEVER_ANSWERED
    except OSError as error:
        problem = f"it cannot be reached: {error.strerror or type(error).__name__}"
    except ValueError:
        problem = "its URL names no host that can be reached"
    return Posted(problem=problem)


def _connect(parts: SplitResult, allow: tuple[str, ...], deadline: float) -> socket.socket:
    host = parts.hostname
    if not host:
        raise ValueError("no host")  # which the resolver would read as this machine
    sock = _first_that_answers(host, parts.port or (443 if parts.scheme == "https" else 80), allow, deadline)
    if parts.scheme != "https":
        return sock
    try:
        sock.settimeout(_left(deadline))
        return ssl.create_default_context().wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def _first_that_answers(host: str, port: int, allow: tuple[str, ...], deadline: float) -> socket.socket:
    """Connect to the validated addresses: resolving the name again could return others."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    permitted = [info for info in found if _may_connect(host, str(info[4][0]), allow)]
    if not permitted:
        raise _PrivateAddress
    failure: OSError = OSError(errno.EHOSTUNREACH, "no address")
    for number, (family, kind, protocol, _, address) in enumerate(permitted):
        sock = socket.socket(family, kind, protocol)
        try:
            # An unresponsive address must leave time for the others.
            sock.settimeout(_left(deadline) / (len(permitted) - number))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _may_connect(host: str, text: str, allow: tuple[str, ...]) -> bool:
    address = address_of(text)
    return address is not None and (is_public(address) or is_allowed(host.rstrip("."), address, allow))


def _request(parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {
        "Host": parts.netloc,
        "User-Agent": "trainyard",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _send(sock: socket.socket, data: bytes, deadline: float) -> None:
    rest = memoryview(data)
    while rest:
        sock.settimeout(_left(deadline))
        rest = rest[sock.send(rest) :]


def _answer(sock: socket.socket, deadline: float) -> tuple[int, str]:
    """(status, Retry-After)."""
    reading = _TimedReading(sock, deadline)
    response = http.client.HTTPResponse(_Timed(reading), method="POST")  # type: ignore[arg-type] # all it uses
    try:
        response.begin()
        # Discarded: closing with unread bytes would reset the connection for the receiver.
        reading.deadline = min(deadline, time.monotonic() + _BODY_SECONDS)
        with contextlib.suppress(OSError, http.client.HTTPException):
            response.read(_BODY_BYTES)
        return response.status, response.headers.get("Retry-After", "")
    finally:
        response.close()


def _judge(status: int, retry_after: str) -> Posted:
    if 200 <= status < 300:
        return Posted(status_code=status)
    moved = "; redirects are not followed" if 300 <= status < 400 else ""
    asked = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10 else 0
    return Posted(status_code=status, problem=f"it answers {status}{moved}", retry_after_seconds=asked)


class _Timed:
    """A socket substitute for http.client that enforces the deadline on each read, against slow responses."""

    def __init__(self, reading: "_TimedReading") -> None:
        self._reading = reading

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(self._reading)


class _TimedReading(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self.deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self.deadline))
        return self._sock.recv_into(buffer)


def _left(deadline: float) -> float:
    """The remaining seconds. Raises TimeoutError after the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
