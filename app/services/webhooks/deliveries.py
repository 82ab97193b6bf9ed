"""Deliveries of a webhook: listing, redelivery, test events, and deletion of old ones."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import IllegalTransition, NotFound
from app.domain.ids import new_id
from app.domain.webhooks import TEST_EVENT
from app.models import Webhook, WebhookDelivery
from app.models.base import database_now, utc_now
from app.security.permissions import Caller
from app.services.lifecycle import audit
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from app.services.webhooks import subscriptions
from app.services.webhooks.delivery_queue import give_up

# Ids sort by creation, and the index of a webhook's deliveries has them.
ORDERS: Orders = {"created_at": (WebhookDelivery.id,)}
_DROPPED_AT_ONCE = 5000


def page(session: Session, webhook_id: str, request: PageRequest, *, state: str | None = None) -> Page[WebhookDelivery]:
    query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id)
    if state is not None:
        query = query.where(WebhookDelivery.state == state)
    return page_of(session, query, ORDERS, request)


def find(session: Session, caller: Caller, webhook_id: str, delivery_id: str) -> WebhookDelivery:
    """The delivery. Raises NotFound if the webhook is not visible or has no such delivery."""
    hook = subscriptions.find(session, caller, webhook_id)
    row = session.get(WebhookDelivery, delivery_id)
    if row is None or row.webhook_id != hook.id:
        raise NotFound(
            f"webhook {hook.id} has no delivery {delivery_id[:64]}; finished deliveries are deleted after a while"
        )
    return row


def send_test(db: Database, caller: Caller, webhook_id: str, *, on_written: OnWritten = not_stored) -> WebhookDelivery:
    """Enqueue a test event. Raises IllegalTransition for a disabled webhook."""
    with db.write() as session:
        hook = _enabled(session, caller, webhook_id)
        event_id = new_id("evt")
        payload: dict[str, Any] = {
            "event": {
                "id": event_id,
                "seq": 0,
                "at": utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "type": TEST_EVENT,
                "from_status": None,
                "to_status": None,
                "actor": caller.actor,
                "reason": "",
                "message": "a test event for this webhook",
                "data": {},
            },
            "job": None,
        }
        row = WebhookDelivery(
            id=new_id("dlv"), webhook_id=hook.id, event_id=event_id, event_type=TEST_EVENT, payload=payload
        )
        session.add(row)
        session.flush()
        _note(session, caller, hook, "webhook.test", row)
        on_written(session, row)
    return row


def redeliver(
    db: Database, caller: Caller, webhook_id: str, delivery_id: str, *, on_written: OnWritten = not_stored
) -> WebhookDelivery:
    """Enqueue the same event again, as a new delivery. Raises IllegalTransition for a disabled webhook."""
    with db.write() as session:
        old = find(session, caller, webhook_id, delivery_id)
        hook = _enabled(session, caller, webhook_id)
        row = WebhookDelivery(
            id=new_id("dlv"), webhook_id=hook.id, event_id=old.event_id, event_type=old.event_type, payload=old.payload
        )
        session.add(row)
        session.flush()
        _note(session, caller, hook, "webhook.redeliver", row)
        on_written(session, row)
    return row


def drop_old(db: Database, *, kept_days: int) -> None:
    """Delete deliveries finished long ago, and give up expired ones of disabled webhooks."""
    with db.write() as session:
        switched_off = select(Webhook.id).where(Webhook.is_active.is_(False))
        give_up(session, database_now(session), WebhookDelivery.webhook_id.in_(switched_off))
    before = utc_now() - timedelta(days=kept_days)
    old = select(WebhookDelivery.id).where(WebhookDelivery.finished_at < before).limit(_DROPPED_AT_ONCE)
    dropped = _DROPPED_AT_ONCE
    while dropped == _DROPPED_AT_ONCE:
        # In batches: one long transaction would block other writers.
        with db.write() as session:
            ids = list(session.scalars(old))
            session.execute(delete(WebhookDelivery).where(WebhookDelivery.id.in_(ids)))
        dropped = len(ids)


def _enabled(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    hook = subscriptions.find(session, caller, webhook_id)
    if not hook.is_active:
        raise IllegalTransition(f"webhook {hook.id} is disabled; set is_active to true first")
    subscriptions.reset_backoff(hook)
    return hook


def _note(session: Session, caller: Caller, hook: Webhook, action: str, row: WebhookDelivery) -> None:
    data = {"delivery_id": row.id, "event_id": row.event_id}
    audit.record(session, actor=caller.actor, action=action, project=hook.project, target=hook.id, data=data)
