"""Webhooks: creating, changing and testing them, and their deliveries."""

import re
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields, validate

from app.domain.lifecycle.states import JobState
from app.domain.webhooks import DELIVERY_STATES, EVENT_NAMES, LONGEST_ADDRESS, MOST_RECIPIENTS
from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.queries import OrderBy, QueryFlag
from app.schemas.strict_fields import Choice, Text
from app.schemas.webhooks import ChangeWebhookSchema, CreateWebhookSchema
from app.security.permissions import Permission
from app.services.access import projects
from app.services.webhooks import deliveries, subscriptions
from app.services.webhooks.subscriptions import WantedWebhook, WebhookRules, Webhooks
from app.web.admin_frame import admin_page, pretty, shown_once
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done

blueprint = Blueprint("web_admin_webhooks", __name__)
STATES = tuple(str(state) for state in JobState)
EVENTS = tuple(name for name in EVENT_NAMES if name not in STATES)

FORMATS = (("json", "JSON"), ("slack", "Slack"), ("teams", "Teams"))  # of URLs; emails have a form of their own


class WebhookListSchema(WebListSchema):
    order_by = OrderBy("created_at")
    project = Text(longest=63)


class DeliveryListSchema(WebListSchema):
    order_by = OrderBy("created_at")
    state = Choice(DELIVERY_STATES)


class Addresses(fields.List[str]):
    """One text with addresses, between which are commas or white space."""

    def __init__(self) -> None:
        super().__init__(Text(longest=LONGEST_ADDRESS, shortest=1), validate=validate.Length(1, MOST_RECIPIENTS))

    def _deserialize(self, value: list[str], *args: Any, **kwargs: Any) -> list[Any]:
        words = [word for text in value for word in re.split(r"[,;\s]+", text) if word]
        return super()._deserialize(words, *args, **kwargs)


class CreateWebhookFormSchema(CreateWebhookSchema):
    recipients = Addresses()
    is_active = QueryFlag(load_default=True)  # type: ignore[assignment]  # a form has texts


class ChangeWebhookFormSchema(ChangeWebhookSchema):
    recipients = Addresses()
    is_active = QueryFlag(load_default=False)  # type: ignore[assignment]  # a form has texts


@blueprint.get("/admin/webhooks")
@operation("List webhooks", permission=Permission.VIEW, media="html", query=WebhookListSchema)
def webhooks(query: dict[str, Any]) -> Response:
    who = caller()
    with plane().db.read() as session:
        page = subscriptions.page(session, who, page_request(query), project=query.get("project"))
        known = projects.names(session, who)
    return admin_page(
        "admin/webhooks.html", hooks=listed(page, query), projects=known, home=who.home_project, **_choices()
    )


@blueprint.post("/admin/webhooks")
@operation("Create a webhook", permission=Permission.MANAGE, media="html", **form(CreateWebhookFormSchema))
def create_webhook(body: dict[str, Any]) -> Response:
    lists = {"event_types": tuple(body["event_types"]), "recipients": tuple(body.get("recipients", ()))}
    new = _webhooks().create(caller(), WantedWebhook(**{**body, **lists}))
    return shown_once("admin/new_webhook.html", new=new, title="New webhook")


@blueprint.get("/admin/webhooks/<webhook_id>")
@operation("Show a webhook and its deliveries", permission=Permission.VIEW, media="html", query=DeliveryListSchema)
def webhook(webhook_id: str, query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        hook = subscriptions.find(session, caller(), webhook_id)
        found = listed(deliveries.page(session, hook.id, page_request(query), state=query.get("state")), query)
    return admin_page(
        "admin/webhook.html",
        hook=hook,
        deliveries=found,
        delivery_choices=[(each, each.replace("_", " ")) for each in DELIVERY_STATES],
        state=query.get("state", ""),
        **_choices(),
    )


@blueprint.post("/admin/webhooks/<webhook_id>")
@operation("Change a webhook", permission=Permission.MANAGE, media="html", **form(ChangeWebhookFormSchema))
def change_webhook(webhook_id: str, body: dict[str, Any]) -> Response:
    # The form has all of its fields, so what is not sent is empty.
    _webhooks().change(caller(), webhook_id, {"description": "", "event_types": [], **body})
    return done("Saved.", url_for("web_admin_webhooks.webhook", webhook_id=webhook_id))


@blueprint.post("/admin/webhooks/<webhook_id>/delete")
@operation("Delete a webhook", permission=Permission.MANAGE, media="html", **form())
def delete_webhook(webhook_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    _webhooks().delete(caller(), webhook_id)
    return done("The webhook is deleted.", url_for("web_admin_webhooks.webhooks"))


@blueprint.post("/admin/webhooks/<webhook_id>/test")
@operation("Send a test event to a webhook", permission=Permission.MANAGE, media="html", **form())
def test_webhook(webhook_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    deliveries.send_test(plane().db, caller(), webhook_id)
    return done(
        "A test event is on its way; its delivery is listed below.",
        url_for("web_admin_webhooks.webhook", webhook_id=webhook_id),
    )


@blueprint.get("/admin/webhooks/<webhook_id>/deliveries/<delivery_id>")
@operation("Show a delivery with its payload", permission=Permission.VIEW, media="html")
def delivery(webhook_id: str, delivery_id: str) -> Response:
    with plane().db.read() as session:
        hook = subscriptions.find(session, caller(), webhook_id)
        row = deliveries.find(session, caller(), webhook_id, delivery_id)
    return admin_page("admin/delivery.html", hook=hook, delivery=row, payload=pretty(row.payload))


@blueprint.post("/admin/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver")
@operation("Send an event again", permission=Permission.MANAGE, media="html", **form())
def redeliver(webhook_id: str, delivery_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    deliveries.redeliver(plane().db, caller(), webhook_id, delivery_id)
    return done("The event is sent again.", url_for("web_admin_webhooks.webhook", webhook_id=webhook_id))


def _choices() -> dict[str, Any]:
    smtp = backend().settings.smtp
    return {
        "now": datetime.now(UTC),
        "states": STATES,
        "events": EVENTS,
        "formats": FORMATS,
        "mail_domains": smtp.allowed_domains if smtp.host else (),
    }


def _webhooks() -> Webhooks:
    return Webhooks(plane().db, plane().box, WebhookRules.of(backend().settings))
