"""One email, handed over to the operator's mail server (RFC 5321): no address of a user decides what is connected to.

A refusal of all recipients or of the text for good (5xx) is final. Everything else is tried again: what the server
can't do now (4xx), and what its operator has to mend, such as a wrong password.
"""

import contextlib
import re
import smtplib
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from app.domain.webhooks import DOMAINS_SETTING, may_receive
from app.services.webhooks.http_post import Posted
from app.services.webhooks.mail_client import MailClient, SaysTooMuch
from config.smtp import SmtpSettings

HOST_SETTING, PASSWORD_SETTING = "TRAINYARD_SMTP_HOST", "TRAINYARD_SMTP_PASSWORD_FILE"
_POLICY = SMTP.clone(cte_type="7bit")  # so that the server needs no 8BITMIME
_LONGEST_ANSWER = 200
_LEADING_DOTS = re.compile(rb"^\.", re.MULTILINE)
_TOO_MUCH = "the mail server says more than an email needs"

Answer = tuple[int, bytes]
# OSError: as all of smtplib's; the others: of the codec of host names, and of the library that writes headers.
FAILURES = (OSError, ValueError, MessageError)


@dataclass(frozen=True, kw_only=True)
class Mail:
    """``recipients`` are named in the email; it is sent to those who are neither in ``reached`` nor in ``refused``.

    ``refused`` has the answer of the mail server that was final.
    """

    delivery_id: str
    event_type: str
    recipients: tuple[str, ...]
    reached: tuple[str, ...]
    refused: Mapping[str, str]
    subject: str
    text: str
    at: datetime

    @property
    def open_recipients(self) -> tuple[str, ...]:
        return tuple(each for each in self.recipients if each not in self.reached and each not in self.refused)


def send(mail: Mail, server: SmtpSettings) -> Posted:
    """Hand the email over, or say why not. Never raises for failures of the server or its settings.

    It takes at most twice the timeout: once until the server wants the text, and once for the text and its answer.
    """
    if not mail.open_recipients:
        return _refused(mail, {}, ())  # those whom it had not reached are no longer recipients
    deadline = time.monotonic() + server.timeout_seconds
    problem, password = _readiness(mail, server)
    if problem:
        return Posted(problem=problem)
    try:
        with session(server, password, deadline) as smtp:
            return _hand_over(smtp, mail, server)
    except FAILURES as error:
        return failure_of(error, server.timeout_seconds)


def message_of(mail: Mail, sender: str) -> bytes:
    """The email as it is sent; no text of a job adds a header.

    The library refuses line ends in headers, but decodes encoded words (RFC 2047) in what it is given, also to line
    ends, which it then writes as they are: nothing in a subject is left that begins one.
    """
    message = EmailMessage(policy=_POLICY)
    message["From"] = Address("Trainyard", addr_spec=sender)
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = mail.subject.replace("=?", "= ?")
    message["Date"] = format_datetime(mail.at)
    # The same in each try, so that readers can show it once.
    message["Message-ID"] = f"<{mail.delivery_id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic answers
    message["X-Trainyard-Event"] = mail.event_type
    message["X-Trainyard-Delivery"] = mail.delivery_id
    message.set_content(mail.text)
    return message.as_bytes()


def failure_of(error: Exception, timeout_seconds: float) -> Posted:
    """What a server that could not be used, or an email that could not be written, says of a try; one of `FAILURES`."""
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
        case smtplib.SMTPServerDisconnected():
            return Posted(problem=_broken_off(error.__context__, late))
        case smtplib.SMTPException():
            # The library has no class of its own for a server without any sign-in that it knows.
            return Posted(problem=f"the mail server cannot be used: {_printable(str(error))}")
        case SaysTooMuch():
            return Posted(problem=_TOO_MUCH)
        case ssl.SSLError():
            return Posted(problem=f"TLS with the mail server failed: {error.reason or type(error).__name__}")
        case OSError():
            return Posted(problem=f"the mail server cannot be reached: {error.strerror or type(error).__name__}")
        case _:
            return Posted(problem=f"the email cannot be sent with these settings: {_printable(str(error))}")


def _broken_off(cause: BaseException | None, late: str) -> str:
    """Smtplib says the same of all of these."""
    match cause:
        case TimeoutError():
            return late
        case SaysTooMuch():
            return _TOO_MUCH
        case _:
            return "the mail server closed the connection"


def _readiness(mail: Mail, server: SmtpSettings) -> tuple[str, str]:
    """(what the settings keep from being sent, the password): settings may have changed since the webhook was made."""
    if not server.host:
        return f"no mail server is configured; the administrator sets {HOST_SETTING} for the coordinators", ""
    refused = [each for each in mail.recipients if not may_receive(each, server.allowed_domains)]
    if refused:
        return f"{DOMAINS_SETTING} no longer allows emails to {', '.join(refused)}", ""
    return read_password(server)


def read_password(server: SmtpSettings) -> tuple[str, str]:
    """(why it cannot be read, the password): both are empty where none is set."""
    if server.password_file is None:
        return "", ""
    try:
        password = server.password_file.read_text("ascii").strip()
    except (OSError, ValueError):
        return f"the password in {PASSWORD_SETTING}, a file of ASCII text, cannot be read", ""
    return "", password


@contextlib.contextmanager
def session(server: SmtpSettings, password: str, deadline: float) -> Iterator[MailClient]:
    """A connection that may send: encrypted and signed in as the settings say, or one of `FAILURES`.

    ``deadline`` is of ``time.monotonic``.
    """
    smtp = MailClient(server, deadline)
    try:
        if server.user:
            smtp.login(server.user, password)
        smtp.ehlo_or_helo_if_needed()
        yield smtp
        smtp.say_goodbye()
    finally:
        smtp.close()


def _hand_over(smtp: MailClient, mail: Mail, server: SmtpSettings) -> Posted:
    code, said = smtp.mail(server.sender)
    if code != 250:
        return Posted(status_code=_known(code), problem=f"the mail server refuses its sender: {answer_of(code, said)}")
    answers: dict[str, Answer] = {}
    try:
        return _to_recipients(smtp, mail, server, answers)
    except FAILURES as error:
        return replace(failure_of(error, server.timeout_seconds), refused=_never(answers))


def _to_recipients(smtp: MailClient, mail: Mail, server: SmtpSettings, answers: dict[str, Answer]) -> Posted:
    """``answers`` gets those to the recipients, which count also where this raises one of `FAILURES`."""
    for recipient in mail.open_recipients:
        answers[recipient] = smtp.rcpt(recipient)
    refused = {recipient: answer for recipient, answer in answers.items() if answer[0] not in (250, 251)}
    taken = tuple(recipient for recipient in answers if recipient not in refused)
    if not taken:
        return _refused(mail, refused, ())
    code, said = _data(smtp, message_of(mail, server.sender), server.timeout_seconds)
    if code != 250:
        problem = f"the mail server refuses the email: {answer_of(code, said)}"
        never = _never(refused)
        return Posted(status_code=_known(code), problem=problem, refused=never, is_final=_is_for_good(code))
    return _refused(mail, refused, taken)


def _data(smtp: MailClient, content: bytes, seconds: float) -> Answer:
    """The answer to the text has all of the timeout: who gives up on it sends a second copy (RFC 5321, 4.5.3.2.6)."""
    code, said = smtp.docmd("DATA")
    if code != 354:
        return code, said
    smtp.give_until(time.monotonic() + seconds)
    smtp.send(_LEADING_DOTS.sub(b"..", content) + b".\r\n")
    return smtp.getreply()


def _refused(mail: Mail, refused: Mapping[str, Answer], taken: tuple[str, ...]) -> Posted:
    """The result by recipients; ``refused`` are those of this try, whom it may be tried for again or not."""
    said = {**mail.refused, **{recipient: answer_of(*answer) for recipient, answer in refused.items()}}
    problem = "; ".join(f"not to {each}: {said[each]}" for each in mail.recipients if each in said)
    codes = [code for code, _ in refused.values()]
    return Posted(
        status_code=250 if taken else _known(codes[0]) if codes else None,
        problem=problem,
        reached=taken,
        refused=_never(refused),
        is_final=bool(problem) and all(map(_is_for_good, codes)),
    )


def _never(refused: Mapping[str, Answer]) -> dict[str, str]:
    """Those whom RFC 5321 forbids to be asked for again, with the answer."""
    return {recipient: answer_of(*answer) for recipient, answer in refused.items() if _is_for_good(answer[0])}


def _is_for_good(code: int) -> bool:
    return 500 <= code < 600


def _known(code: int) -> int | None:
    """The library says -1 where the server says no number."""
    return code if code > 0 else None


def _text(error: smtplib.SMTPResponseException) -> str:
    said = error.smtp_error
    return answer_of(error.smtp_code, said if isinstance(said, bytes) else said.encode())


def answer_of(code: int, answer: bytes) -> str:
    """The server's answer in one line, bounded."""
    return f"{code} {_printable(answer.decode('ascii', 'replace'))}".strip()


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in " ".join(text.split()))[:_LONGEST_ANSWER]
