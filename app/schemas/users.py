"""People who sign in by an identity provider, as administrators see them."""

from marshmallow import Schema, fields

from app.schemas.queries import ListQuerySchema, OrderBy
from app.schemas.strict_fields import Moment, says


class UserQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "last_seen_at", "name")


class PersonSchema(Schema):
    user_id = fields.String(attribute="user.id")
    name = fields.String(attribute="user.name")
    email = fields.String(attribute="user.email")
    email_verified = fields.Boolean(attribute="user.email_verified", **says("As the provider says"))
    issuer = fields.String(attribute="user.issuer")
    subject = fields.String(attribute="user.subject", **says("Who it is at the issuer, whatever the name"))
    groups = fields.List(
        fields.String(),
        attribute="user.groups",
        **says("Values of the claim that decides roles, as of the last sign-in"),
    )
    key_id = fields.String(attribute="user.key_id", **says("The key of the sign-ins; to revoke it ends them"))
    role = fields.String(attribute="key.role", dump_default=None, allow_none=True)
    project = fields.String(attribute="key.project", dump_default=None, allow_none=True)
    is_active = fields.Boolean(**says("Whether that key is good; if not, the next sign-in makes another one"))
    created_at = Moment(attribute="user.created_at")
    last_seen_at = Moment(attribute="user.last_seen_at", **says("The last sign-in"))
