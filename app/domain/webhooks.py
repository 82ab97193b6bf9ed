"""Webhook rules: event filter, backoff after failures, signature, and allowed URLs."""

import hashlib
import hmac
from collections.abc import Collection
from datetime import timedelta

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.serving.events import ServiceEventType
from app.domain.spec.locations.service_urls import check_service_url
from app.domain.sweeps.events import SweepEventType

TEST_EVENT = "webhook.test"
DELIVERY_STATES = ("waiting", "delivered", "given_up")
# Names that a webhook may subscribe to: event types of jobs, sweeps and services, and job states.
EVENT_NAMES: tuple[str, ...] = (
    *(str(kind) for kind in EventType),
    *(str(kind) for kind in SweepEventType),
    *(str(kind) for kind in ServiceEventType),
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
