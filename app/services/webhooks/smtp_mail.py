"""One email, handed over to the operator's mail server (RFC 5321): no address of a user decides what is connected to.

A refusal of all recipients or of the text for good (5xx) is final. Everything else is tried again: what the server
can't do now (4xx), and what its operator has to mend, such as a wrong password.
"""

import contextlib
import smtplib
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from app.domain.webhooks import DOMAINS_SETTING, may_receive
from app.services.webhooks.http_post import Posted
from config.smtp import SmtpSettings

HOST_SETTING, PASSWORD_SETTING = "TRAINYARD_SMTP_HOST", "TRAINYARD_SMTP_PASSWORD_FILE"
_POLICY = SMTP.clone(cte_type="7bit")  # so that the server needs no 8BITMIME
_LONGEST_ANSWER = 200
_GOODBYE_SECONDS = 1.0

Answer = tuple[int, bytes]


@dataclass(frozen=True, kw_only=True)
class Mail:
    """``recipients`` are named in the email; it is sent to those who are not in ``reached``."""

    delivery_id: str
    event_type: str
    recipients: tuple[str, ...]
    reached: tuple[str, ...]
    subject: str
    text: str
    at: datetime


def send(mail: Mail, server: SmtpSettings) -> Posted:
    """Hand the email over, or say why not. Never raises for failures of the server or its settings."""
    deadline = time.monotonic() + server.timeout_seconds
    problem, password = _readiness(mail, server)
    if problem:
        return Posted(problem=problem)
    try:
        with _session(server, password, deadline) as smtp:
            return _hand_over(smtp, mail, server.sender, deadline)
    except OSError as error:  # as all of smtplib's
        return _failed(error, server.timeout_seconds)


def message_of(mail: Mail, sender: str) -> bytes:
    """The email as it is sent; no text of a job can add a header, since the library refuses line ends in headers."""
    message = EmailMessage(policy=_POLICY)
    message["From"] = Address("Trainyard", addr_spec=sender)
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = mail.subject
    message["Date"] = format_datetime(mail.at)
    # The same in each try, so that readers can show it once.
    message["Message-ID"] = f"<{mail.delivery_id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic answers
    message["X-Trainyard-Event"] = mail.event_type
    message["X-Trainyard-Delivery"] = mail.delivery_id
    message.set_content(mail.text)
    return message.as_bytes()


def _failed(error: OSError, timeout_seconds: float) -> Posted:
    late = f"the mail server did not answer within {timeout_seconds:g} seconds"
    match error:
        case smtplib.SMTPAuthenticationError():
            problem = "the mail server does not accept the installation's user"
            return Posted(status_code=error.smtp_code, problem=problem)
        case smtplib.SMTPResponseException():
            return Posted(status_code=_known(error.smtp_code), problem=f"the mail server answers {_text(error)}")
        case smtplib.SMTPNotSupportedError():
            return Posted(problem="the mail server does not offer the TLS or the sign-in that the settings demand")
        case TimeoutError():
            return Posted(problem=late)
        case smtplib.SMTPException():
            is_late = isinstance(error.__context__, TimeoutError)  # smtplib says the same of both
            return Posted(problem=late if is_late else "the mail server closed the connection")
        case ssl.SSLError():
            return Posted(problem=f"TLS with the mail server failed: {error.reason or type(error).__name__}")
        case _:
            return Posted(problem=f"the mail server cannot be reached: {error.strerror or type(error).__name__}")


def _readiness(mail: Mail, server: SmtpSettings) -> tuple[str, str]:
    """(what the settings keep from being sent, the password): settings may have changed since the webhook was made."""
    if not server.host:
        return f"no mail server is configured; the administrator sets {HOST_SETTING} for the coordinators", ""
    refused = [each for each in mail.recipients if not may_receive(each, server.allowed_domains)]
    if refused:
        return f"{DOMAINS_SETTING} no longer allows emails to {', '.join(refused)}", ""
    if server.password_file is None:
        return "", ""
    try:
        password = server.password_file.read_text("ascii").strip()
    except (OSError, ValueError):
        return f"the coordinator cannot read the password in {PASSWORD_SETTING}, a file of ASCII text", ""
    return "", password


@contextlib.contextmanager
def _session(server: SmtpSettings, password: str, deadline: float) -> Iterator[smtplib.SMTP]:
    """A connection that may send: encrypted and signed in as the settings say, or an error."""
    smtp = _connected(server, deadline)
    try:
        if server.security == "starttls":
            _limit(smtp, deadline)
            smtp.starttls(context=ssl.create_default_context())
        if server.user:
            _limit(smtp, deadline)
            smtp.login(server.user, password)
        _limit(smtp, deadline)
        smtp.ehlo_or_helo_if_needed()
        yield smtp
        # What was answered before counts, also if the server says nothing to this.
        _limit(smtp, min(deadline, time.monotonic() + _GOODBYE_SECONDS))
        with contextlib.suppress(OSError):
            smtp.quit()
    finally:
        smtp.close()


def _connected(server: SmtpSettings, deadline: float) -> smtplib.SMTP:
    name = server.sender.rpartition("@")[2]  # smtplib would ask the resolver for this machine's own
    seconds = deadline - time.monotonic()
    if server.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, name, timeout=seconds, context=context)
    return smtplib.SMTP(server.host, server.port, name, timeout=seconds)


def _hand_over(smtp: smtplib.SMTP, mail: Mail, sender: str, deadline: float) -> Posted:
    code, said = smtp.mail(sender)
    if code != 250:
        return Posted(status_code=_known(code), problem=f"the mail server refuses its sender: {_said(code, said)}")
    answers: dict[str, Answer] = {}
    for recipient in mail.recipients:
        if recipient not in mail.reached:
            _limit(smtp, deadline)
            answers[recipient] = smtp.rcpt(recipient)
    refused = {recipient: answer for recipient, answer in answers.items() if answer[0] not in (250, 251)}
    taken = tuple(recipient for recipient in answers if recipient not in refused)
    if not taken:
        return _refused(refused, ())
    _limit(smtp, deadline)
    code, said = _data(smtp, message_of(mail, sender))
    if code != 250:
        problem = f"the mail server refuses the email: {_said(code, said)}"
        return Posted(status_code=_known(code), problem=problem, is_final=_is_for_good(code))
    return _refused(refused, taken) if refused else Posted(status_code=code, reached=taken)


def _data(smtp: smtplib.SMTP, content: bytes) -> Answer:
    try:
        return smtp.data(content)
    except smtplib.SMTPDataError as error:
        return error.smtp_code, error.smtp_error if isinstance(error.smtp_error, bytes) else error.smtp_error.encode()


def _refused(refused: Mapping[str, Answer], taken: tuple[str, ...]) -> Posted:
    problem = "; ".join(f"not to {recipient}: {_said(*answer)}" for recipient, answer in refused.items())
    codes = [code for code, _ in refused.values()]
    return Posted(
        status_code=250 if taken else _known(codes[0]),
        problem=problem,
        reached=taken,
        is_final=all(map(_is_for_good, codes)),
    )


def _limit(smtp: smtplib.SMTP, deadline: float) -> None:
    """Lets the next exchange take what is left. Raises TimeoutError after the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    if smtp.sock is not None:
        smtp.sock.settimeout(left)


def _is_for_good(code: int) -> bool:
    return 500 <= code < 600


def _known(code: int) -> int | None:
    """The library says -1 where the server says no number."""
    return code if code > 0 else None


def _text(error: smtplib.SMTPResponseException) -> str:
    said = error.smtp_error
    return _said(error.smtp_code, said if isinstance(said, bytes) else said.encode())


def _said(code: int, answer: bytes) -> str:
    """The server's answer in one line, bounded."""
    text = " ".join(answer.decode("ascii", "replace").split())
    return f"{code} {''.join(each if each.isprintable() else ' ' for each in text)[:_LONGEST_ANSWER]}".strip()
