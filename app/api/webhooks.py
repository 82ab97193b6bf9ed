"""Webhooks and their deliveries."""

from typing import Any

from flask import Blueprint
from sqlalchemy.orm import Session

from app.http.context import backend, base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.models import WebhookDelivery
from app.schemas.documents import NothingSchema
from app.schemas.webhooks import (
    ChangeWebhookSchema,
    CreateWebhookSchema,
    DeliveryQuerySchema,
    DeliverySchema,
    DeliveryWithPayloadSchema,
    NewWebhookSchema,
    WebhookQuerySchema,
    WebhookSchema,
)
from app.security.permissions import Permission
from app.services.webhooks import deliveries, subscriptions
from app.services.webhooks.subscriptions import WantedWebhook, WebhookRules, Webhooks

blueprint = Blueprint("webhooks", __name__)
_WEBHOOK, _NEW, _DELIVERY, _WHOLE = WebhookSchema(), NewWebhookSchema(), DeliverySchema(), DeliveryWithPayloadSchema()


@blueprint.get("/webhooks")
@operation(
    "List webhooks", permission=Permission.VIEW, query=WebhookQuerySchema, answer=WebhookSchema, items="webhooks"
)
def list_webhooks(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        page = subscriptions.page(session, caller(), page_request(query), project=query.get("project"))
        return page_data("webhooks", _WEBHOOK, page, query)


@blueprint.post("/webhooks")
@operation(
    "Create a webhook", permission=Permission.MANAGE, body=CreateWebhookSchema, answer=NewWebhookSchema, status=201
)
def create_webhook(body: dict[str, Any]) -> Reply:
    lists = {"event_types": tuple(body["event_types"]), "recipients": tuple(body.get("recipients", ()))}
    wanted = WantedWebhook(**{**body, **lists})
    base = base_path()
    recorder = ReplyRecorder(
        lambda _, new: Reply(_NEW.dump(new), 201, location=f"{base}/webhooks/{new.row.id}"), sealed=True
    )
    _webhooks().create(caller(), wanted, on_written=recorder)
    return recorder.reply


@blueprint.get("/webhooks/<webhook_id>")
@operation("Get a webhook", permission=Permission.VIEW, answer=WebhookSchema)
def get_webhook(webhook_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_WEBHOOK.dump(subscriptions.find(session, caller(), webhook_id)))


@blueprint.patch("/webhooks/<webhook_id>")
@operation("Update a webhook", permission=Permission.MANAGE, body=ChangeWebhookSchema, answer=WebhookSchema)
def change_webhook(webhook_id: str, body: dict[str, Any]) -> Reply:
    return Reply(_WEBHOOK.dump(_webhooks().change(caller(), webhook_id, body)))


@blueprint.delete("/webhooks/<webhook_id>")
@operation("Delete a webhook", permission=Permission.MANAGE, status=204)
def delete_webhook(webhook_id: str) -> Reply:
    _webhooks().delete(caller(), webhook_id)
    return Reply(None, 204)


@blueprint.post("/webhooks/<webhook_id>/test")
@operation(
    "Send a test event to a webhook",
    permission=Permission.MANAGE,
    body=NothingSchema,
    body_optional=True,
    answer=DeliverySchema,
    status=201,
)
def test_webhook(webhook_id: str, body: dict[str, Any]) -> Reply:
    del body
    recorder = ReplyRecorder(_sent)
    deliveries.send_test(plane().db, caller(), webhook_id, on_written=recorder)
    return recorder.reply


@blueprint.get("/webhooks/<webhook_id>/deliveries")
@operation(
    "List the deliveries of a webhook",
    permission=Permission.VIEW,
    query=DeliveryQuerySchema,
    answer=DeliverySchema,
    items="deliveries",
)
def list_deliveries(webhook_id: str, query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        hook = subscriptions.find(session, caller(), webhook_id)
        page = deliveries.page(session, hook.id, page_request(query), state=query.get("state"))
        return page_data("deliveries", _DELIVERY, page, query)


@blueprint.get("/webhooks/<webhook_id>/deliveries/<delivery_id>")
@operation("Get a delivery with its payload", permission=Permission.VIEW, answer=DeliveryWithPayloadSchema)
def get_delivery(webhook_id: str, delivery_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_WHOLE.dump(deliveries.find(session, caller(), webhook_id, delivery_id)))


@blueprint.post("/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver")
@operation(
    "Redeliver an event",
    permission=Permission.MANAGE,
    body=NothingSchema,
    body_optional=True,
    answer=DeliverySchema,
    status=201,
)
def redeliver(webhook_id: str, delivery_id: str, body: dict[str, Any]) -> Reply:
    del body
    recorder = ReplyRecorder(_sent)
    deliveries.redeliver(plane().db, caller(), webhook_id, delivery_id, on_written=recorder)
    return recorder.reply


def _webhooks() -> Webhooks:
    return Webhooks(plane().db, plane().box, WebhookRules.of(backend().settings))


def _sent(_session: Session, row: WebhookDelivery) -> Reply:
    location = f"{base_path()}/webhooks/{row.webhook_id}/deliveries/{row.id}"
    return Reply(_DELIVERY.dump(row), 201, location=location)
