"""Events of a job on the wire."""

from marshmallow import Schema, fields

from app.schemas.queries import ListQuerySchema, OrderBy
from app.schemas.strict_fields import AsStored, Moment


class EventQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", default="created_at")


class EventSchema(Schema):
    id = fields.String()
    at = Moment()
    type = fields.String()
    from_status = fields.String(allow_none=True)
    to_status = fields.String(allow_none=True)
    actor = fields.String()
    reason = fields.String()
    message = fields.String()
    data = AsStored({"type": "object"})
