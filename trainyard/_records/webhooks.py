"""Types of the server's answers about webhooks, part of trainyard.records."""

from typing import Any, NotRequired, TypedDict


class Webhook(TypedDict):
    webhook_id: str
    project: str
    url: str
    recipients: NotRequired[list[str]]
    description: str
    event_types: list[str]
    format: NotRequired[str]
    is_active: bool
    failures: NotRequired[int]
    rests_until: NotRequired[str | None]
    created_by: str
    created_at: str


class NewWebhook(Webhook):
    """The only answer that ever contains ``secret``, which is empty where emails are sent."""

    secret: str


class Delivery(TypedDict):
    delivery_id: str
    webhook_id: str
    event_id: str
    event_type: str
    state: str
    tries: int
    status_code: int | None
    problem: str
    next_try_at: str | None
    created_at: str
    finished_at: str | None


class DeliveryWithPayload(Delivery):
    payload: dict[str, Any]


Deliveries = list[Delivery]
