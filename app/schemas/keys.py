"""API keys on the wire; the secret is shown only once, in the response that creates it."""

from marshmallow import Schema, fields

from app.domain.administration import (
    DEFAULT_GRACE_SECONDS,
    LONGEST_KEY_NAME,
    MAX_EXPIRES_DAYS,
    MAX_GRACE_SECONDS,
    MOST_PER_MINUTE,
)
from app.schemas.documents import DocumentSchema, RequestSchema
from app.schemas.queries import ListQuerySchema, OrderBy
from app.schemas.strict_fields import Choice, Moment, Text, Whole, says
from app.security.permissions import Role

_REQUESTS = says("requests to models a minute; null: as the gateways' settings say, 0: no limit")
_TOKENS = says("tokens of these a minute, prompts and answers together; null: as the settings say, 0: no limit")


class KeyQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "name")


class CreateKeySchema(DocumentSchema):
    role = Choice(tuple(str(role) for role in Role), load_default=str(Role.USER))
    project = Text(longest=63, shortest=1)
    name = Text(longest=LONGEST_KEY_NAME, load_default="")
    expires_days = Whole(1, MAX_EXPIRES_DAYS)
    requests_per_minute = Whole(0, MOST_PER_MINUTE, **_REQUESTS)
    tokens_per_minute = Whole(0, MOST_PER_MINUTE, **_TOKENS)


class ChangeKeySchema(RequestSchema):
    """Omitted fields are unchanged; null means the gateways' settings."""

    requests_per_minute = Whole(0, MOST_PER_MINUTE, allow_none=True, **_REQUESTS)
    tokens_per_minute = Whole(0, MOST_PER_MINUTE, allow_none=True, **_TOKENS)


class RotateKeySchema(DocumentSchema):
    grace_seconds = Whole(
        0, MAX_GRACE_SECONDS, load_default=DEFAULT_GRACE_SECONDS, **says("how long the old key stays valid")
    )


class KeySchema(Schema):
    key_id = fields.String(attribute="id")
    name = fields.String()
    role = fields.String()
    project = fields.String(allow_none=True)
    prefix = fields.String()
    access_key = fields.String()
    created_at = Moment()
    expires_at = Moment(allow_none=True)
    revoked_at = Moment(allow_none=True)
    last_used_at = Moment(allow_none=True)
    replaced_by = fields.String(allow_none=True)
    requests_per_minute = fields.Integer(allow_none=True, **_REQUESTS)
    tokens_per_minute = fields.Integer(allow_none=True, **_TOKENS)


class NewKeySchema(Schema):
    key_id = fields.String(attribute="row.id")
    key = fields.String()
    access_key = fields.String(attribute="row.access_key")
    secret_key = fields.String()
    role = fields.String(attribute="row.role")
    project = fields.String(attribute="row.project", allow_none=True)
    expires_at = Moment(attribute="row.expires_at", allow_none=True)
