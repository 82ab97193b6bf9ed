"""What was or is to be delivered to a webhook: looking it up, sending again, trying out, throwing old ones away."""

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
    """Raises NotFound when there is no such webhook in sight, or it has no such delivery."""
    hook = subscriptions.find(session, caller, webhook_id)
    row = session.get(WebhookDelivery, delivery_id)
    if row is None or row.webhook_id != hook.id:
        raise NotFound(f"webhook {hook.id} has no delivery {delivery_id[:64]}; finished ones are kept for a while only")
    return row


def send_test(db: Database, caller: Caller, webhook_id: str, *, on_written: OnWritten = not_stored) -> WebhookDelivery:
    """Put an event on its way that is none. Raises IllegalTransition for a webhook that is switched off."""
    with db.write() as session:
        hook = _awake(session, caller, webhook_id)
        event_id = new_id("evt")
        payload: dict[str, Any] = {
            "event": {
                "id": event_id, "seq": 0, "at": utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "type": TEST_EVENT, "from_status": None, "to_status": None, "actor": caller.actor, "reason": "",
                "message": "somebody tries out this webhook", "data": {},
            },
            "job": None,
        }  # fmt: skip
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
    """Put the same event on its way once more, as a delivery of its own."""
    with db.write() as session:
        old = find(session, caller, webhook_id, delivery_id)
        hook = _awake(session, caller, webhook_id)
        row = WebhookDelivery(
            id=new_id("dlv"), webhook_id=hook.id, event_id=old.event_id, event_type=old.event_type, payload=old.payload
        )
        session.add(row)
        session.flush()
        _note(session, caller, hook, "webhook.redeliver", row)
        on_written(session, row)
    return row


def drop_old(db: Database, *, kept_days: int) -> None:
    """Throw away what was finished long ago, and give up what waits for webhooks that are switched off."""
    with db.write() as session:
        switched_off = select(Webhook.id).where(Webhook.is_active.is_(False))
        give_up(session, database_now(session), WebhookDelivery.webhook_id.in_(switched_off))
    before = utc_now() - timedelta(days=kept_days)
    old = select(WebhookDelivery.id).where(WebhookDelivery.finished_at < before).limit(_DROPPED_AT_ONCE)
    dropped = _DROPPED_AT_ONCE
    while dropped == _DROPPED_AT_ONCE:
        # A part at a time: one long transaction would keep everybody else from writing.
        with db.write() as session:
            ids = list(session.scalars(old))
            session.execute(delete(WebhookDelivery).where(WebhookDelivery.id.in_(ids)))
        dropped = len(ids)


def _awake(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    hook = subscriptions.find(session, caller, webhook_id)
    if not hook.is_active:
        raise IllegalTransition(f"webhook {hook.id} is switched off; set is_active to true first")
    subscriptions.wake(hook)
    return hook


def _note(session: Session, caller: Caller, hook: Webhook, action: str, row: WebhookDelivery) -> None:
    data = {"delivery_id": row.id, "event_id": row.event_id}
    audit.record(session, actor=caller.actor, action=action, project=hook.project, target=hook.id, data=data)
