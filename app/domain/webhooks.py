"""Webhook rules: event filter, backoff after failures, signature, and allowed URLs and recipients."""

import hashlib
import hmac
import re
from collections.abc import Collection, Sequence
from datetime import timedelta

from app.domain.batches.events import BatchEventType
from app.domain.errors import BadSpec
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.serving.events import ServiceEventType
from app.domain.spec.locations.service_urls import check_service_url
from app.domain.sweeps.events import SweepEventType

TEST_EVENT = "webhook.test"
DELIVERY_STATES = ("waiting", "delivered", "given_up")
# Names that a webhook may subscribe to: event types of jobs, sweeps, services and batches, and job states.
EVENT_NAMES: tuple[str, ...] = (
    *(str(kind) for kind in EventType),
    *(str(kind) for kind in SweepEventType),
    *(str(kind) for kind in ServiceEventType),
    *(str(kind) for kind in BatchEventType),
    *(str(state) for state in JobState),
)

GIVEN_UP_AFTER = timedelta(hours=24)
# Backoff of a failed delivery; the last value is repeated. A failed event blocks later ones for three tries, then they
# overtake it.
PAUSES_SECONDS = (5, 15, 300, 900, 1800, 3600)
TRIES_IN_LINE = 3
# Backoff of a receiver that fails repeatedly, regardless of the event.
RESTS_SECONDS = (5, 15, 60, 300, 900)

ALLOW_SETTING = "TRAINYARD_WEBHOOK_ALLOW"
LONGEST_URL = 2048
DOMAINS_SETTING = "TRAINYARD_SMTP_DOMAINS"
EVERY_DOMAIN = "*"
MOST_RECIPIENTS = 10
LONGEST_ADDRESS = 254  # RFC 5321, 4.5.3.1.3, without the angle brackets
# Narrower than RFC 5321: no quotes, comments and names, and no % and !, by which old servers pass an email on.
_LOCAL_PART = r"(?!\.)(?:[A-Za-z0-9_+'=-]|\.(?![.@])){1,64}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS = re.compile(rf"(?=.{{3,{LONGEST_ADDRESS}}}\Z){_LOCAL_PART}@(?:{_LABEL}\.)+{_LABEL}")


def wants(event_types: Collection[str], kind: str, to_status: str | None) -> bool:
    """Whether a webhook with these names is notified of the event; no names mean all."""
    return not event_types or kind in event_types or (to_status is not None and to_status in event_types)


def pause_after(tries: int) -> timedelta:
    """Backoff of an event after this many tries, from 1."""
    return timedelta(seconds=PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS)) - 1])


def rest_after(failures: int, asked_seconds: int = 0) -> timedelta:
    """Backoff of a receiver after this many consecutive failures; ``asked_seconds`` is its Retry-After."""
    own = RESTS_SECONDS[min(failures, len(RESTS_SECONDS)) - 1]
    return timedelta(seconds=max(own, min(asked_seconds, RESTS_SECONDS[-1])))


def signature(secret: str, at_unix: int, body: bytes) -> str:
    """Value of X-Trainyard-Signature; the time is signed, too, so that receivers can refuse replays."""
    signed = hmac.new(secret.encode(), f"{at_unix}.".encode() + body, hashlib.sha256)
    return f"t={at_unix},v1={signed.hexdigest()}"


def check_url(url: str, allow: tuple[str, ...], *, field: str) -> None:
    """Refuse a malformed URL, and a private address that is not allowed."""
    check_service_url(
        url,
        allow,
        what="a webhook is an address such as https://host/path",
        instead="the receiver knows us by X-Trainyard-Signature",
        setting=ALLOW_SETTING,
        field=field,
    )


def check_recipients(recipients: Sequence[str], domains: Collection[str], *, field: str) -> None:
    """Refuse addresses that are not plain, recipients listed twice, and domains that are not allowed."""
    for number, address in enumerate(recipients):
        if ADDRESS.fullmatch(address) is None:
            raise BadSpec(
                f"{address[:80]!r} is not a plain email address such as ana@example.org; write it without a name, and "
                "its domain as punycode (xn--…)",
                field=f"{field}.{number}",
            )
        if not may_receive(address, domains):
            raise BadSpec(
                f"emails to {address.rpartition('@')[2]} are not allowed; the domains that the administrator allows in "
                f"{DOMAINS_SETTING} are {', '.join(domains)}",
                field=f"{field}.{number}",
            )
    if len({address.lower() for address in recipients}) < len(recipients):
        raise BadSpec("a recipient is listed twice; list each once", field=field)


def may_receive(address: str, domains: Collection[str]) -> bool:
    """Whether the operator allows emails to the address; a domain does not stand for those below it."""
    domain = address.rpartition("@")[2].lower()
    return any(each in (EVERY_DOMAIN, domain) for each in map(str.lower, domains))
