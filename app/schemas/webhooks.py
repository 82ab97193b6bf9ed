"""Webhooks and their deliveries on the wire; a webhook's secret is shown once, in the answer that made it."""

import re
from typing import Any

from marshmallow import Schema, fields, validate

from app.domain.webhooks import EVENT_NAMES, LONGEST_URL
from app.schemas.documents import DocumentSchema
from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import AsStored, Choice, Flag, Matching, Moment, Text, says

STATES = ("waiting", "delivered", "given_up")
_SECRET = re.compile(r"[\x21-\x7e]{16,256}")
_SECRET_RULE = "must be 16 to 256 printable ASCII characters without spaces"  # noqa: S105  no secret


def _url(**more: Any) -> Text:
    meaning = "http or https, without user, password and fragment; private addresses only where the operator lists them"
    return Text(longest=LONGEST_URL, shortest=1, **more, **says(meaning, format="uri"))


def _event_types(**more: Any) -> fields.List[str]:
    meaning = "kinds of events, and states that a job comes into; empty: all events"
    return fields.List(Choice(EVENT_NAMES), validate=validate.Length(max=len(EVENT_NAMES)), **more, **says(meaning))


def _secret() -> Matching:
    return Matching(_SECRET, _SECRET_RULE, **says("what deliveries are signed with; left out: one is made"))


class CreateWebhookSchema(DocumentSchema):
    url = _url(required=True)
    description = Text(longest=255, load_default="")
    event_types = _event_types(load_default=[])
    secret = _secret()
    is_active = Flag(load_default=True)
    project = Text(longest=63, shortest=1)


class ChangeWebhookSchema(DocumentSchema):
    url = _url()
    description = Text(longest=255)
    event_types = _event_types()
    secret = Matching(_SECRET, _SECRET_RULE, **says("replaces the one before; what still waits is signed with it"))
    is_active = Flag(**says("false: no event of this time is told, and what waits stays where it is"))


class WebhookQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at")
    project = fields.String(validate=validate.Length(max=63))


class WebhookSchema(Schema):
    webhook_id = fields.String(attribute="id")
    project = fields.String()
    url = fields.String()
    description = fields.String()
    event_types = fields.List(fields.String())
    is_active = fields.Boolean()
    failures = fields.Integer(**says("tries that failed since the last one that did not"))
    rests_until = Moment(allow_none=True, **says("after a failure nothing is sent until then"))
    created_by = fields.String()
    created_at = Moment()


class NewWebhookSchema(Schema):
    webhook_id = fields.String(attribute="row.id")
    secret = fields.String()
    project = fields.String(attribute="row.project")
    url = fields.String(attribute="row.url")
    description = fields.String(attribute="row.description")
    event_types = fields.List(fields.String(), attribute="row.event_types")
    is_active = fields.Boolean(attribute="row.is_active")
    created_by = fields.String(attribute="row.created_by")
    created_at = Moment(attribute="row.created_at")


class DeliveryQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at")
    state = Choice(STATES)


class NothingSchema(DocumentSchema):
    """A body without fields."""


class DeliverySchema(Schema):
    delivery_id = fields.String(attribute="id")
    webhook_id = fields.String()
    event_id = fields.String()
    event_type = fields.String()
    state = fields.String(**says("waiting, delivered or given_up"))
    tries = fields.Integer()
    status_code = fields.Integer(allow_none=True, **says("what the receiver answered to the last try"))
    problem = fields.String(**says("why the last try failed"))
    next_try_at = Moment(allow_none=True, **says("of a waiting one: not before; null: as soon as it is its turn"))
    created_at = Moment()
    finished_at = Moment(allow_none=True)


class DeliveryWithPayloadSchema(DeliverySchema):
    payload = AsStored({"type": "object"})
