"""A real SMTP server on the loopback, with TLS and sign-in as a test wants them; answers can be given beforehand."""

import email
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
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


def _authenticator(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
    is_known = isinstance(given, LoginPassword) and given == LoginPassword(USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_known, handled=False)
