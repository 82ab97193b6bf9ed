"""Projects on the wire."""

from marshmallow import Schema, fields

from app.domain.names import NAME, NAME_RULE
from app.schemas.documents import DocumentSchema
from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import Matching, Moment, Text


class ProjectQuerySchema(ListQuerySchema):
    order_by = Cursor("created_at", "name")


class CreateProjectSchema(DocumentSchema):
    name = Matching(NAME, NAME_RULE, required=True)
    description = Text(longest=255, load_default="")


class ChangeProjectSchema(DocumentSchema):
    description = Text(longest=255)


class ProjectSchema(Schema):
    name = fields.String()
    description = fields.String()
    created_at = Moment()
