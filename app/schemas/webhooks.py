"""Webhooks and deliveries on the wire; the secret is shown only once, in the response that creates the webhook."""

import re
from typing import Any, ClassVar

from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from app.domain.webhook_messages import EMAIL_FORMAT, PLAIN_FORMAT, WEBHOOK_FORMATS
from app.domain.webhooks import DELIVERY_STATES, EVENT_NAMES, LONGEST_ADDRESS, LONGEST_URL, MOST_RECIPIENTS
from app.schemas.documents import DocumentSchema
from app.schemas.queries import ListQuerySchema, OrderBy
from app.schemas.strict_fields import AsStored, Choice, Flag, Matching, Moment, Text, says

_SECRET = re.compile(r"[\x21-\x7e]{16,256}")
_SECRET_RULE = "must be 16 to 256 printable ASCII characters without spaces"  # noqa: S105  no secret


def _url(**more: Any) -> Text:
    meaning = "http or https, without credentials and fragment; private addresses only if the operator allows them"
    return Text(longest=LONGEST_URL, shortest=1, **more, **says(meaning, format="uri"))


def _event_types(**more: Any) -> fields.List[str]:
    meaning = "event types and job states; empty: all events"
    return fields.List(Choice(EVENT_NAMES), validate=validate.Length(max=len(EVENT_NAMES)), **more, **says(meaning))


def _format(**more: Any) -> Choice:
    meaning = (
        "json: the event and its job; slack or teams: a message for an incoming webhook of that product; email: an "
        "email to the recipients, where the operator has set a mail server"
    )
    return Choice(WEBHOOK_FORMATS, **more, **says(meaning))


def _recipients() -> fields.List[str]:
    meaning = "addresses that emails go to, with format email; their domains are those that the operator allows"
    address = Text(longest=LONGEST_ADDRESS, shortest=1)
    return fields.List(address, validate=validate.Length(1, MOST_RECIPIENTS), **says(meaning))


def _secret() -> Matching:
    return Matching(_SECRET, _SECRET_RULE, **says("the signing secret; generated if omitted"))


class CreateWebhookSchema(DocumentSchema):
    conditions: ClassVar[dict[str, Any]] = {
        "if": {"properties": {"format": {"const": EMAIL_FORMAT}}, "required": ["format"]},
        "then": {"required": ["recipients"], "properties": {"recipients": {"type": "array"}}},
        "else": {"required": ["url"], "properties": {"url": {"type": "string"}}},
    }

    url = _url()
    recipients = _recipients()
    description = Text(longest=255, load_default="")
    event_types = _event_types(load_default=[])
    format = _format(load_default=PLAIN_FORMAT)
    secret = _secret()
    is_active = Flag(load_default=True)
    project = Text(longest=63, shortest=1)

    @validates_schema(skip_on_field_errors=True)
    def _has_a_receiver(self, values: dict[str, Any], **_: Any) -> None:
        needed = "recipients" if values["format"] == EMAIL_FORMAT else "url"
        if needed not in values:
            raise ValidationError(self.fields[needed].error_messages["required"], needed)


class ChangeWebhookSchema(DocumentSchema):
    url = _url()
    recipients = _recipients()
    description = Text(longest=255)
    event_types = _event_types()
    format = _format()
    secret = Matching(_SECRET, _SECRET_RULE, **says("replaces the signing secret, also for pending deliveries"))
    is_active = Flag(**says("false: new events are not delivered, and pending deliveries stay pending"))


class WebhookQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at")
    project = fields.String(validate=validate.Length(max=63))


class WebhookSchema(Schema):
    webhook_id = fields.String(attribute="id")
    project = fields.String()
    url = fields.String(**says("empty: it sends emails"))
    recipients = fields.List(fields.String(), **says("whom it sends emails"))
    description = fields.String()
    event_types = fields.List(fields.String())
    format = fields.String()
    is_active = fields.Boolean()
    failures = fields.Integer(**says("consecutive failed attempts"))
    rests_until = Moment(
        allow_none=True,
        **says("nothing is sent before: end of the backoff after a failure, or of a full hour of emails"),
    )
    created_by = fields.String()
    created_at = Moment()


class NewWebhookSchema(Schema):
    webhook_id = fields.String(attribute="row.id")
    secret = fields.String(**says("empty: it sends emails, which are not signed"))
    project = fields.String(attribute="row.project")
    url = fields.String(attribute="row.url")
    recipients = fields.List(fields.String(), attribute="row.recipients")
    description = fields.String(attribute="row.description")
    event_types = fields.List(fields.String(), attribute="row.event_types")
    format = fields.String(attribute="row.format")
    is_active = fields.Boolean(attribute="row.is_active")
    created_by = fields.String(attribute="row.created_by")
    created_at = Moment(attribute="row.created_at")


class DeliveryQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at")
    state = Choice(DELIVERY_STATES)


class DeliverySchema(Schema):
    delivery_id = fields.String(attribute="id")
    webhook_id = fields.String()
    event_id = fields.String()
    event_type = fields.String()
    state = fields.String(**says("waiting, delivered or given_up"))
    tries = fields.Integer()
    status_code = fields.Integer(
        allow_none=True, **says("the receiver's status in the last attempt, of emails that of the mail server")
    )
    problem = fields.String(**says("why the last attempt failed; of a delivered email who could not get it"))
    next_try_at = Moment(
        allow_none=True, **says("for waiting deliveries: earliest time of the next attempt; null: as soon as possible")
    )
    created_at = Moment()
    finished_at = Moment(allow_none=True)


class DeliveryWithPayloadSchema(DeliverySchema):
    payload = AsStored({"type": "object"})
