"""A client of a mail server with a deadline for all of its answers together, and a bound on what they hold.

The timeout of a socket restarts with each byte, and smtplib keeps all lines of an answer, however many there are.
"""

import contextlib
import smtplib
import socket
import ssl
import time
from typing import Any

from app.services.access.guarded_http import DeadlineSocket, first_that_answers
from config.smtp import SmtpSettings

_MOST_BYTES = 1 << 18  # of answers; ten recipients need some kilobytes
_SHORTEST_SECONDS = 0.001
_GOODBYE_SECONDS = 1.0


class SaysTooMuch(OSError):
    """The mail server sends more than an email needs."""


class _BoundedSocket(DeadlineSocket):
    room = _MOST_BYTES

    def recv_into(self, *arguments: Any) -> int:
        count = super().recv_into(*arguments)
        self.room -= count
        if self.room < 0:
            raise SaysTooMuch
        # What comes next may be a handshake, which takes the timeout as it is.
        self.settimeout(max(_SHORTEST_SECONDS, self.deadline - time.monotonic()))
        return count


class _SecureSocket(_BoundedSocket, ssl.SSLSocket):
    pass


class MailClient(smtplib.SMTP):
    """Connected to the server of the settings, and encrypted as they say; whatever fails by then is an error.

    The deadline is of ``time.monotonic``, and covers everything but the resolution of the server's name.
    """

    sock: _BoundedSocket | None

    def __init__(self, server: SmtpSettings, deadline: float) -> None:
        self._deadline, self._is_tls = deadline, server.security == "tls"
        name = server.sender.rpartition("@")[2]  # smtplib would ask the resolver for this machine's own
        super().__init__(server.host, server.port, name)
        try:
            if server.security == "starttls":
                self.starttls(context=_context())
                self.give_until(deadline)
        except BaseException:
            self.close()
            raise

    def give_until(self, deadline: float) -> None:
        """The deadline of what follows."""
        if self.sock is not None:
            self.sock.deadline = deadline

    def say_goodbye(self) -> None:
        """What was answered before counts, also if the server says nothing to this."""
        self.give_until(time.monotonic() + _GOODBYE_SECONDS)
        with contextlib.suppress(OSError):
            self.quit()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002  smtplib's
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sock = first_that_answers(found, _BoundedSocket, self._deadline)
        sock.settimeout(max(_SHORTEST_SECONDS, self._deadline - time.monotonic()))
        try:
            if self._is_tls:
                sock = _context().wrap_socket(sock, server_hostname=host)  # type: ignore[assignment]
        except BaseException:
            sock.close()
            raise
        sock.deadline = self._deadline
        return sock


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.sslsocket_class = _SecureSocket
    return context
