"""The delivery queue of webhooks: delivery leases, backoff and giving up, in short transactions.

At most one coordinator holds the turn of a webhook, so its events are delivered in order. A turn expires if its holder
dies; the interrupted delivery is then sent again. Times are the database's.
"""

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, case, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.database.engine import Database
from app.domain.webhook_messages import EMAIL_FORMAT, in_format
from app.domain.webhooks import GIVEN_UP_AFTER, TRIES_IN_LINE, pause_after, rest_after
from app.models import Webhook, WebhookDelivery
from app.models.base import database_now
from app.models.webhook import IS_WAITING
from app.security.secrets import SecretBox, SecretKeyMissing
from app.services.webhooks.http_post import Posted

# Added to the timeout of an attempt, for slow name resolution.
CLAIM_MARGIN_SECONDS = 30.0
# Delays are at most an hour: a longer one was written before the clock was set back.
_TOO_FAR = timedelta(hours=2)
_HOUR = timedelta(hours=1)
_NOT_TAKEN = "not taken within 24 hours"
_UNREADABLE_SECRET = "its secret was stored under another secret key of this installation; give it a new one"  # noqa: S105


Clock = Callable[[Session], datetime]


@dataclass(frozen=True, kw_only=True)
class Due:
    """A webhook with due deliveries."""

    webhook_id: str
    project: str


@dataclass(frozen=True, kw_only=True)
class DeliveryAttempt:
    """One delivery attempt under a turn. ``problem`` says why it cannot be sent.

    With ``recipients`` it is an email of the ``payload`` to those who are neither in ``reached`` nor in ``refused``,
    otherwise a POST of the ``body`` to the ``url``.
    """

    webhook_id: str
    turn: str
    delivery_id: str
    event_type: str
    payload: Mapping[str, Any]
    at: datetime
    url: str = ""
    secret: str = ""
    body: bytes = b""
    problem: str = ""
    recipients: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


class Turns:
    """Delivery leases of webhooks; thread-safe. A lease covers one attempt of ``timeout_seconds``.

    The webhooks of a project together send at most ``emails_per_hour``.
    """

    def __init__(
        self,
        db: Database,
        *,
        secret_key: str,
        timeout_seconds: float,
        emails_per_hour: int = 60,
        clock: Clock = database_now,
    ) -> None:
        self._db = db
        self._now = clock
        self._secret_key = secret_key
        self._emails_per_hour = emails_per_hour
        self._lasts = timedelta(seconds=timeout_seconds + CLAIM_MARGIN_SECONDS)

    def due(self, *, besides: Collection[str], besides_projects: Collection[str], limit: int) -> list[Due]:
        """Webhooks with due deliveries and no current turn, the least recently served first."""
        with self._db.read() as session:
            now = self._now(session)
            waiting = _due_deliveries(now).where(WebhookDelivery.webhook_id == Webhook.id).correlate(Webhook).exists()
            rows = session.execute(
                select(Webhook.id, Webhook.project)
                .where(*_free(now), Webhook.id.not_in(besides), Webhook.project.not_in(besides_projects), waiting)
                .order_by(Webhook.turn_until.asc().nulls_first(), Webhook.id)
                .limit(limit)
            )
            return [Due(webhook_id=row.id, project=row.project) for row in rows]

    def any_waiting(self) -> bool:
        """Whether any delivery is not finished, due or not."""
        with self._db.query() as connection:
            return connection.execute(select(WebhookDelivery.id).where(IS_WAITING).limit(1)).first() is not None

    def take(self, due: Due) -> DeliveryAttempt | None:
        """Acquire the turn; None if another coordinator holds it or nothing is due."""
        turn = secrets.token_hex(8)
        with self._db.write() as session:
            now = self._now(session)
            taken = _set(session, due.webhook_id, *_free(now), turn=turn, turn_until=now + self._lasts)
            return self._next(session, due.webhook_id, turn, now) if taken else None

    def settle(self, attempt: DeliveryAttempt, posted: Posted, *, go_on: bool) -> DeliveryAttempt | None:
        """Record the result; returns the next attempt of the same turn, or None if the turn is over."""
        with self._db.write() as session:
            now = self._now(session)
            # Lock the webhook before its delivery, in the same order as its deletion.
            mine = _hold(session, attempt)
            ends = _end_of(attempt, posted)
            if ends:
                # Even if the turn was lost: the receiver accepted it, or never will.
                _finish(session, attempt.delivery_id, posted, ends, now)
            elif posted.reached or posted.refused:
                _note_answered(session, attempt, posted)
            if not mine:
                return None
            if ends == "delivered":
                _set(session, attempt.webhook_id, failures=0, rests_until=None, turn_until=now + self._lasts)
                if go_on:
                    return self._next(session, attempt.webhook_id, attempt.turn, now)
            else:
                self._fail(session, attempt, posted, now)
            _end(session, attempt.webhook_id, attempt.turn, now)
            return None

    def _next(self, session: Session, webhook_id: str, turn: str, now: datetime) -> DeliveryAttempt | None:
        hook = session.get_one(Webhook, webhook_id, populate_existing=True)
        delivery = session.scalar(
            _due_deliveries(now).where(WebhookDelivery.webhook_id == webhook_id).order_by(WebhookDelivery.id).limit(1)
        )
        if delivery is None or not hook.is_active or self._hour_is_full(session, hook, now):
            _end(session, webhook_id, turn, now)
            return None
        return self._attempt(hook, delivery, turn, now)

    def _attempt(self, hook: Webhook, delivery: WebhookDelivery, turn: str, now: datetime) -> DeliveryAttempt:
        same: dict[str, Any] = {
            "webhook_id": hook.id,
            "turn": turn,
            "delivery_id": delivery.id,
            "event_type": delivery.event_type,
            "payload": delivery.payload,
            "at": now,
        }
        if hook.format == EMAIL_FORMAT:
            same |= {"reached": tuple(delivery.reached), "refused": dict(delivery.refused)}
            return DeliveryAttempt(**same, recipients=tuple(hook.recipients))
        secret, problem = self._opened(hook.sealed_secret)
        body = body_of(in_format(hook.format, delivery.payload))
        return DeliveryAttempt(**same, url=hook.url, secret=secret, body=body, problem=problem)

    def _hour_is_full(self, session: Session, hook: Webhook, now: datetime) -> bool:
        """Whether the webhook has to rest, since its project has sent all the emails of an hour.

        Deliveries that are too old are given up. Those of deleted webhooks are not there to be counted.
        """
        if hook.format != EMAIL_FORMAT:
            return False
        since = session.scalar(
            select(WebhookDelivery.finished_at)
            .join(Webhook, Webhook.id == WebhookDelivery.webhook_id)
            .where(Webhook.project == hook.project, Webhook.format == EMAIL_FORMAT)
            .where(WebhookDelivery.state == "delivered", WebhookDelivery.finished_at > now - _HOUR)
            .order_by(WebhookDelivery.finished_at.desc())
            .offset(self._emails_per_hour - 1)
            .limit(1)
        )
        if since is None:
            return False
        hook.rests_until = since + _HOUR
        session.flush()
        give_up(session, now, WebhookDelivery.webhook_id == hook.id)
        return True

    def _opened(self, sealed: str) -> tuple[str, str]:
        """(secret, problem): a coordinator with a wrong key must continue with other webhooks."""
        try:
            return str(SecretBox(self._secret_key).open(sealed)["secret"]), ""
        except SecretKeyMissing:
            return "", _UNREADABLE_SECRET

    def _fail(self, session: Session, attempt: DeliveryAttempt, posted: Posted, now: datetime) -> None:
        hook = session.get_one(Webhook, attempt.webhook_id, populate_existing=True)
        hook.failures += 1
        hook.rests_until = now + rest_after(hook.failures, posted.retry_after_seconds)
        delivery = session.get(WebhookDelivery, attempt.delivery_id)
        if delivery is not None and delivery.state == "waiting":
            delivery.tries += 1
            delivery.status_code, delivery.problem = posted.status_code, posted.problem
            if delivery.tries >= TRIES_IN_LINE:
                delivery.next_try_at = now + pause_after(delivery.tries)
        session.flush()
        give_up(session, now, WebhookDelivery.webhook_id == attempt.webhook_id)


def give_up(session: Session, now: datetime, *which: ColumnElement[bool]) -> None:
    """Give up deliveries that have waited too long, so that those of a dead receiver do not accumulate."""
    session.execute(
        update(WebhookDelivery)
        .where(IS_WAITING, WebhookDelivery.created_at <= now - GIVEN_UP_AFTER, *which)
        .values(
            state="given_up",
            finished_at=now,
            problem=case(
                (WebhookDelivery.problem == "", _NOT_TAKEN),
                else_=_NOT_TAKEN + "; the last try: " + WebhookDelivery.problem,
            ),
        )
        .execution_options(synchronize_session=False)
    )


def body_of(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":")).encode()


def _free(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        Webhook.is_active.is_(True),
        or_(Webhook.turn == "", _is_over(Webhook.turn_until, now)),
        _is_over(Webhook.rests_until, now),
    )


def _due_deliveries(now: datetime) -> Select[WebhookDelivery]:
    return select(WebhookDelivery).where(IS_WAITING, _is_over(WebhookDelivery.next_try_at, now))


def _is_over(until: InstrumentedAttribute[datetime | None], now: datetime) -> ColumnElement[bool]:
    return or_(until.is_(None), until <= now, until > now + _TOO_FAR)


def _end_of(attempt: DeliveryAttempt, posted: Posted) -> str:
    """The state in which a delivery ends by this try; empty: it is tried again."""
    if not posted.problem:
        return "delivered"
    if not posted.is_final:
        return ""
    # An email that some recipients cannot get, now or ever, is delivered if others got it.
    return "delivered" if posted.reached or attempt.reached else "given_up"


def _finish(session: Session, delivery_id: str, posted: Posted, state: str, now: datetime) -> None:
    session.execute(
        update(WebhookDelivery)
        .where(WebhookDelivery.id == delivery_id, WebhookDelivery.state == "waiting")
        .values(
            state=state,
            tries=WebhookDelivery.tries + 1,
            status_code=posted.status_code,
            problem=posted.problem,
            finished_at=now,
        )
        .execution_options(synchronize_session=False)
    )


def _note_answered(session: Session, attempt: DeliveryAttempt, posted: Posted) -> None:
    """Of an email that is tried again: not to those who have got it or never will, also by the try of another turn."""
    delivery = session.get(WebhookDelivery, attempt.delivery_id, with_for_update=True, populate_existing=True)
    if delivery is not None:
        delivery.reached = list(dict.fromkeys([*delivery.reached, *posted.reached]))
        delivery.refused = {**delivery.refused, **posted.refused}
        session.flush()


def _hold(session: Session, attempt: DeliveryAttempt) -> bool:
    """Lock the webhook; False if this turn is over. New deliveries can still be added concurrently."""
    query = select(Webhook.id).where(Webhook.id == attempt.webhook_id, Webhook.turn == attempt.turn)
    return session.scalar(query.with_for_update(key_share=True)) is not None


def _end(session: Session, webhook_id: str, turn: str, now: datetime) -> None:
    """Release the turn. ``turn_until`` remains as the time of the last turn, for least-recently-served order."""
    _set(session, webhook_id, Webhook.turn == turn, turn="", turn_until=now)


def _set(session: Session, webhook_id: str, *only_if: ColumnElement[bool], **values: Any) -> bool:
    query = update(Webhook).where(Webhook.id == webhook_id, *only_if).values(**values).returning(Webhook.id)
    return session.scalar(query.execution_options(synchronize_session=False)) is not None
