"""Check of the mail server: connection, TLS, sign-in and sender, without an email."""

import smtplib
import ssl
import time

from app.services.operations.diagnosis.broker import is_loopback
from app.services.operations.diagnosis.findings import Findings, failed, fine, warning
from app.services.operations.diagnosis.site import Site
from app.services.webhooks import smtp_mail

_WITHOUT_SIGN_IN = "; if it takes emails without a sign-in, leave TRAINYARD_SMTP_USER out"
_DEFAULT = (
    "is it running, and may this machine connect to it? Check TRAINYARD_SMTP_HOST, TRAINYARD_SMTP_PORT "
    "and TRAINYARD_SMTP_SECURITY (tls is usual on 465, starttls on 587)"
)
LONGEST_SECONDS = 10.0  # the timeout of an email may be longer than a person waits for the doctor


def server(site: Site) -> Findings:
    smtp = site.settings.smtp
    if not smtp.host:
        return fine("none is set: webhooks send no emails")
    unread, password = smtp_mail.read_password(smtp)
    if unread:
        return failed(unread, "make it a file of the user that coordinators run as, with mode 0600")
    seconds = min(smtp.timeout_seconds, LONGEST_SECONDS)
    try:
        with smtp_mail.session(smtp, password, time.monotonic() + seconds) as client:
            code, said = client.mail(smtp.sender)
    except smtp_mail.FAILURES as error:
        return failed(smtp_mail.failure_of(error, seconds).problem, _way_out(error, signs_in=bool(smtp.user)))
    if code != 250:
        return failed(
            f"it refuses emails from {smtp.sender}: {smtp_mail.answer_of(code, said)}",
            "set TRAINYARD_SMTP_SENDER to an address that this installation may send from",
        )
    if smtp.security == "none" and not is_loopback(smtp.host):
        return warning(
            f"emails go to {smtp.host} in the clear",
            "set TRAINYARD_SMTP_SECURITY to starttls or tls, unless the network is private",
        )
    return fine(f"{smtp.host}:{smtp.port} takes emails from {smtp.sender}")


def _way_out(error: Exception, *, signs_in: bool) -> str:
    match error:
        case smtplib.SMTPAuthenticationError():
            return "check TRAINYARD_SMTP_USER and the password in TRAINYARD_SMTP_PASSWORD_FILE"
        case smtplib.SMTPNotSupportedError():
            way_out = "set TRAINYARD_SMTP_SECURITY to what it offers on TRAINYARD_SMTP_PORT: tls is usual on 465"
            return f"{way_out}{_WITHOUT_SIGN_IN if signs_in else ''}"
        case smtplib.SMTPServerDisconnected() | smtplib.SMTPResponseException():
            return _DEFAULT
        case smtplib.SMTPException():
            return f"it must offer CRAM-MD5, PLAIN or LOGIN, often only with TRAINYARD_SMTP_SECURITY{_WITHOUT_SIGN_IN}"
        case ssl.SSLCertVerificationError():
            return (
                "TRAINYARD_SMTP_HOST must be the name in its certificate, and this machine must trust who issued it "
                "(SSL_CERT_FILE)"
            )
        case _:
            return _DEFAULT
