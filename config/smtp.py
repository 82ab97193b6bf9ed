"""Settings of the mail server that sends the emails of webhooks."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from config.values import rules
from config.values.fields import setting

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LOCAL_PART = r"(?!\.)(?:[A-Za-z0-9_+-]|\.(?![.@])){1,64}"
_ADDRESS = re.compile(rf"{_LOCAL_PART}@{_LABEL}(?:\.{_LABEL})*")
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_LONGEST_TIMEOUT_SECONDS = 300.0


def host(value: str) -> None:
    """Empty means none."""
    if value and _HOST.fullmatch(value) is None and not _is_address(value):
        raise ValueError("expected a host name or an IP address, without a port")


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def timeout(value: float) -> None:
    if not 0 < value <= _LONGEST_TIMEOUT_SECONDS:
        raise ValueError(f"expected more than 0 and at most {_LONGEST_TIMEOUT_SECONDS:g} seconds")


def transport(value: str) -> None:
    if value not in ("starttls", "tls", "none"):
        raise ValueError("expected starttls, tls or none")


def address(value: str) -> None:
    """Empty means none."""
    if value and _ADDRESS.fullmatch(value) is None:
        raise ValueError("expected an address like trainyard@example.org, without a name before it")


def domains(value: tuple[str, ...]) -> None:
    for each in value:
        if each != "*" and _DOMAIN.fullmatch(each) is None:
            raise ValueError("expected domains like example.org, separated by commas, or *")


@dataclass(frozen=True, kw_only=True)
class SmtpSettings:
    host: str = setting("", "mail server that sends the emails of webhooks; empty: such webhooks are refused", host)
    port: int = setting(587, "port of the mail server; 465 is usual with `tls`", rules.port)
    security: str = setting(
        "starttls", "`starttls`: plain until the server agrees on TLS, or nothing is sent; `tls`; `none`", transport
    )
    user: str = setting("", "user at the mail server; empty: without sign-in")
    password_file: Path | None = setting(None, "file with the password of that user, read for each email")
    sender: str = setting("", "address that the emails come from", address)
    domains: tuple[str, ...] = setting(
        (),
        "comma-separated domains that webhooks may send emails to, without their subdomains; `*`: all; empty: the "
        "sender's own",
        domains,
    )
    per_hour: int = setting(60, "maximum number of emails of one project in an hour; others wait", rules.at_least_one)
    timeout_seconds: float = setting(
        30.0, "timeout of all that comes before an email's text, and once more of the text; at most 300", timeout
    )

    @property
    def allowed_domains(self) -> tuple[str, ...]:
        return self.domains or (self.sender.rpartition("@")[2],)

    def contradictions(self) -> list[str]:
        found = []
        if self.host and not self.sender:
            found.append("TRAINYARD_SMTP_HOST: set TRAINYARD_SMTP_SENDER, too")
        if bool(self.user) != bool(self.password_file):
            found.append("TRAINYARD_SMTP_USER and TRAINYARD_SMTP_PASSWORD_FILE: set both or neither")
        if self.user and self.security == "none":
            found.append("TRAINYARD_SMTP_SECURITY=none: a password is not sent without TLS; use starttls or tls")
        return found
