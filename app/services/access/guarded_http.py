"""One HTTP request to an address that a user named: to a validated address, without redirects or proxies, and with a
total deadline.

Imported only by those who send, never by supervisors. The other side may be hostile: the deadline covers everything
from name resolution to the last byte that is read.
"""

import contextlib
import errno
import http.client
import logging
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.response import BaseHTTPResponse

from app.domain.spec.locations.hosts import address_of, is_allowed, is_public

FAILURES = (OSError, http.client.HTTPException, HTTPError, ValueError)  # of the receiver, its name or the network
_FIELDS = {"User-Agent": "trainyard", "Content-Type": "application/json", "Connection": "close"}
# It warns of odd headers with the URL, which may hold a receiver's token.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


class PrivateHost(ValueError):
    """Every address of the host is one that must not be reached from here."""


class DeadlineSocket(socket.socket):
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


Timed = TypeVar("Timed", bound=DeadlineSocket)


def first_that_answers(found: Sequence[Any], kind: type[Timed], deadline: float) -> Timed:
    """Connected to one of these, as ``getaddrinfo`` gives them; its deadline is not set. Raises OSError."""
    failure: OSError = OSError(errno.EHOSTUNREACH, "no address")
    for number, (family, form, protocol, _, address) in enumerate(found):
        sock = kind(family, form, protocol)
        try:
            # An unresponsive address must leave time for the others.
            sock.settimeout(_left(deadline) / (len(found) - number))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


@dataclass(frozen=True, kw_only=True)
class OutgoingRequest:
    """``url`` is http or https; ``headers`` come on top of the usual ones."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


@contextlib.contextmanager
def exchange(
    request: OutgoingRequest, allow: tuple[str, ...], deadline: float
) -> Iterator[tuple[BaseHTTPResponse, DeadlineSocket]]:
    """The response, of which nothing but the headers is read yet, and its socket, whose deadline may be shortened.

    ``allow``: permitted private hosts and networks. Raises one of FAILURES.
    """
    parts = urlsplit(request.url)
    host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    if not host:
        raise ValueError("no host")  # which the resolver would read as this machine
    with contextlib.closing(_checked_socket(host, port, allow, deadline)) as checked:
        connection = _connection(parts.scheme, host, port, timeout=_left(deadline))
        connection.checked = checked
        with contextlib.closing(connection):
            connection.connect()
            sock = connection.sock
            sock.deadline = deadline
            headers = {**_FIELDS, **request.headers}
            connection.request(request.method, _target(parts), request.body, headers, preload_content=False)
            yield connection.getresponse(), sock


def problem_of(error: Exception, *, setting: str) -> str:
    """What one of FAILURES means; ``setting`` names the one that ``allow`` comes from."""
    match error:
        case PrivateHost():
            return (
                "its host leads to a loopback, link-local or private address; use a public one, or have the "
                f"administrator list it in {setting}"
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


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _connection(scheme: str, host: str, port: int, *, timeout: float) -> "_Checked":
    if scheme != "https":
        return _Checked(host, port, timeout=timeout)
    context = ssl.create_default_context()
    context.sslsocket_class = _SecureSocket
    return _CheckedTls(host, port, timeout=timeout, ssl_context=context)


class _SecureSocket(DeadlineSocket, ssl.SSLSocket):
    pass


class _Checked(HTTPConnection):
    """Over a socket to an address that was checked; the URL gives only the name, for TLS and the header Host."""

    checked: socket.socket
    sock: Any

    def _new_conn(self) -> socket.socket:
        return self.checked


class _CheckedTls(_Checked, HTTPSConnection):
    pass


def _checked_socket(host: str, port: int, allow: tuple[str, ...], deadline: float) -> DeadlineSocket:
    """The very addresses that were checked are connected to: asking for the name again could give others."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    permitted = [info for info in found if _may_connect(host, str(info[4][0]), allow)]
    if not permitted:
        raise PrivateHost
    return first_that_answers(permitted, DeadlineSocket, deadline)


def _may_connect(host: str, text: str, allow: tuple[str, ...]) -> bool:
    address = address_of(text)
    return address is not None and (is_public(address) or is_allowed(host.rstrip("."), address, allow))


def _left(deadline: float) -> float:
    """The remaining seconds. Raises TimeoutError after the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
