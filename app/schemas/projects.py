"""Projects on the wire."""

from marshmallow import Schema, fields

from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import Moment


class ProjectQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at", "name")


class ProjectSchema(Schema):
    name = fields.String()
    created_at = Moment()
