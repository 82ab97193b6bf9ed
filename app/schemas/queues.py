"""Queues, and the line of jobs that wait in them, on the wire."""

from marshmallow import Schema, fields

from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import Moment, Text


class QueueSchema(Schema):
    name = fields.String(attribute="queue.name")
    waiting = fields.Integer()
    running = fields.Integer()
    created_at = Moment(attribute="queue.created_at")


class QueuesSchema(Schema):
    queues = fields.List(fields.Nested(QueueSchema))


class LineQuerySchema(ListQuerySchema):
    """By default in the order in which the jobs will be served."""

    order_by = Cursor("priority", "created_at", "name", "status", default="priority")
    queue = Text(longest=63)


class EntrySchema(Schema):
    job_id = fields.String(attribute="job.id")
    name = fields.String(attribute="job.name")
    project = fields.String(attribute="job.project")
    status = fields.String(attribute="job.status")
    queue = fields.String(attribute="job.queue")
    priority = fields.Integer(attribute="job.priority")
    position = fields.Integer()
    waiting_seconds = fields.Float()
    pending_reason = fields.String(attribute="job.pending_reason")
    created_at = Moment(attribute="job.created_at")
    queued_at = Moment(attribute="job.queued_at", allow_none=True)
