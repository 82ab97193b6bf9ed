"""A real SMTP server on the loopback, with TLS and sign-in as a test wants them; answers can be given beforehand."""

import email
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from tests.doubles.tls import self_signed
from tests.systems.servers import free_port

USER, PASSWORD = "trainyard", "a-password-of-the-server"


@dataclass
class MailServer:
    """What it received, and what it answers: to recipients by their address, to texts one after the other."""

    port: int
    certificate: Path
    answers: dict[str, str] = field(default_factory=dict)
    answers_to_texts: list[str] = field(default_factory=list)
    received: list[Envelope] = field(default_factory=list)
    signed_in: list[bool] = field(default_factory=list)

    @property
    def messages(self) -> list[EmailMessage]:
        contents = [each.content for each in self.received]
        return [email.message_from_bytes(each, policy=default) for each in contents if isinstance(each, bytes)]

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:  # noqa: N802  aiosmtpd's
        if answer := self.answers.get(address):
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802  aiosmtpd's
        if self.answers_to_texts:
            return self.answers_to_texts.pop(0)
        self.received.append(envelope)
        self.signed_in.append(session.authenticated)
        return "250 taken"


@contextmanager
def mail_server(
    folder: Path, *, security: str = "starttls", sign_in: bool = False, port: int = 0
) -> Iterator[MailServer]:
    """``security`` as in the settings; with ``sign_in`` it takes nothing from those who are not USER."""
    certificate = self_signed(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = MailServer(port=port or free_port(), certificate=certificate)
    controller = Controller(
        server,
        hostname="127.0.0.1",
        port=server.port,
        ssl_context=context if security == "tls" else None,
        tls_context=context if security == "starttls" else None,
        require_starttls=security == "starttls",
        authenticator=_authenticator if sign_in else None,
        auth_required=sign_in,
        auth_require_tls=security == "starttls",
    )
    controller.start()
    try:
        yield server
    finally:
        controller.stop()


@contextmanager
def scripted_mail_server(*answers: tuple[float, bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """(port, the lines and texts that it got): it greets with the first answer, and gives each the next, so late."""
    got: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as lines:
            for seconds, answer in answers:
                time.sleep(seconds)
                connection.sendall(answer)
                got.append(_until_dot(lines) if answer.startswith(b"354") else lines.readline())

    with _serving(serve) as listening:
        yield listening.getsockname()[1], got


@contextmanager
def endless_mail_server(line: bytes, pause_seconds: float) -> Iterator[int]:
    """The port of a server that never comes to the end of its greeting."""

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while True:
                connection.sendall(line)
                time.sleep(pause_seconds)

    with _serving(serve) as listening:
        yield listening.getsockname()[1]


@contextmanager
def _serving(serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """The socket that ``serve`` takes one connection of; it has ended when this does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield listening
        finally:
            thread.join(timeout=10)


def _until_dot(lines: Iterable[bytes]) -> bytes:
    return b"".join(itertools.takewhile(lambda line: line != b".\r\n", lines))


def _authenticator(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
    is_known = isinstance(given, LoginPassword) and given == LoginPassword(USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_known, handled=False)
