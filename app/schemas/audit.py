"""Audit log entries on the wire."""

import re
from typing import get_args

from marshmallow import Schema, fields

from app.schemas.queries import ListQuerySchema, OrderBy, QueryMoment
from app.schemas.strict_fields import AsStored, Choice, Matching, Moment, Text
from app.services.lifecycle.audit import AuditOutcome

ACTION = re.compile(r"[a-z_]{1,32}(?:\.[a-z_]{1,31})?")


class AuditQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at")
    project = Text(longest=63, shortest=1)
    actor = Text(longest=96, shortest=1)
    action = Matching(ACTION, "must be an action such as key.create, or a noun such as key for all of its actions")
    target = Text(longest=128, shortest=1)
    outcome = Choice(get_args(AuditOutcome))
    after = QueryMoment()
    before = QueryMoment()


class AuditEntrySchema(Schema):
    id = fields.String()
    at = Moment()
    project = fields.String(allow_none=True)
    actor = fields.String()
    action = fields.String()
    target = fields.String()
    outcome = Choice(get_args(AuditOutcome))
    message = fields.String()
    request_id = fields.String()
    address = fields.String()
    data = AsStored({"type": "object"})
