"""One POST to a receiver: to a validated address, without redirects, and with a total deadline.

Imported only by the delivery, never by supervisors. Receivers may be hostile: only the status and one header of the
response are used, and the deadline covers everything.
"""

import contextlib
import errno
import http.client
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError

from app.domain.spec.locations.hosts import address_of, is_allowed, is_public
from app.domain.webhooks import ALLOW_SETTING

_FIELDS = {"User-Agent": "trainyard", "Content-Type": "application/json", "Connection": "close"}
_BODY_BYTES = 65_536
_BODY_SECONDS = 1.0
# It warns of odd headers with the URL, which may hold a receiver's token.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


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


class _PrivateAddress(ValueError):
    """Every address of the host is one that must not be reached from here."""


def post(url: str, body: bytes, headers: Mapping[str, str], rules: PostRules) -> Posted:
    """Send the body. Never raises for failures of the receiver, its name or the network."""
    deadline = time.monotonic() + rules.timeout_seconds
    try:
        return _judge(*_exchange(urlsplit(url), body, headers, rules.allow, deadline))
    except TimeoutError:
        return Posted(problem=f"no answer within {rules.timeout_seconds:g} seconds")
    except (OSError, http.client.HTTPException, HTTPError, ValueError) as error:
        return Posted(problem=_problem(error))


def _problem(error: Exception) -> str:
    match error:
        case _PrivateAddress():
            return (
                "its host leads to a loopback, link-local or private address; use a public one, or have the "
                f"administrator list it in {ALLOW_SETTING}"
            )
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or type(error).__name__}"
        case socket.gaierror():
            return "its host name cannot be resolved"
        case http.client.HTTPException() | ProtocolError():
            return "nothing that is HTTP came back"
        case OSError():
            return f"it cannot be reached: {error.strerror or type(error).__name__}"
        case _:
            return "its URL names no host that can be reached"


def _exchange(
    parts: SplitResult, body: bytes, headers: Mapping[str, str], allow: tuple[str, ...], deadline: float
) -> tuple[int, str]:
    """(status, Retry-After)."""
    host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    if not host:
        raise ValueError("no host")  # which the resolver would read as this machine
    with contextlib.closing(_first_that_answers(host, port, allow, deadline)) as checked:
        connection = _connection(parts.scheme, host, port, timeout=_left(deadline))
        connection.checked = checked
        with contextlib.closing(connection):
            connection.connect()
            sock = connection.sock
            sock.deadline = deadline
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, {**_FIELDS, **headers}, preload_content=False)
            response = connection.getresponse()
            # Thrown away: to close on unread bytes would look like a broken connection to the receiver.
            sock.deadline = min(deadline, time.monotonic() + _BODY_SECONDS)
            with contextlib.suppress(OSError, HTTPError):
                response.read(_BODY_BYTES, decode_content=False)
            return response.status, response.headers.get("Retry-After", "")


def _connection(scheme: str, host: str, port: int, *, timeout: float) -> "_Checked":
    if scheme != "https":
        return _Checked(host, port, timeout=timeout)
    context = ssl.create_default_context()
    context.sslsocket_class = _SecureSocket
    return _CheckedTls(host, port, timeout=timeout, ssl_context=context)


class _Timed(socket.socket):
    """Reads and sends until a deadline: the timeout of a socket restarts with each byte."""

    deadline: float

    def recv_into(self, *arguments: Any) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(*arguments)

    def send(self, *arguments: Any) -> int:
        self.settimeout(_left(self.deadline))
        return super().send(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self.settimeout(_left(self.deadline))
        super().sendall(*arguments)


class _SecureSocket(_Timed, ssl.SSLSocket):
    pass


class _Checked(HTTPConnection):
    """Over a socket to an address that was checked; the URL gives only the name, for TLS and the header Host."""

    checked: socket.socket
    sock: Any

    def _new_conn(self) -> socket.socket:
        return self.checked


class _CheckedTls(_Checked, HTTPSConnection):
    pass


def _first_that_answers(host: str, port: int, allow: tuple[str, ...], deadline: float) -> _Timed:
    """The very addresses that were checked are connected to: asking for the name again could give others."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    permitted = [info for info in found if _may_connect(host, str(info[4][0]), allow)]
    if not permitted:
        raise _PrivateAddress
    failure: OSError = OSError(errno.EHOSTUNREACH, "no address")
    for number, (family, kind, protocol, _, address) in enumerate(permitted):
        sock = _Timed(family, kind, protocol)
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


def _judge(status: int, retry_after: str) -> Posted:
    if 200 <= status < 300:
        return Posted(status_code=status)
    moved = "; redirects are not followed" if 300 <= status < 400 else ""
    asked = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10 else 0
    return Posted(status_code=status, problem=f"it answers {status}{moved}", retry_after_seconds=asked)


def _left(deadline: float) -> float:
    """The remaining seconds. Raises TimeoutError after the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
