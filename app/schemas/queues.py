"""Queues, and the line of jobs that wait in them, on the wire."""

from marshmallow import Schema, fields

from app.domain.names import NAME, NAME_RULE
from app.schemas.queries import Cursor, ListQuerySchema
from app.schemas.strict_fields import Flag, Matching, Moment, Number, Text, Whole, says

MOST_JOBS = 1_000_000


class QueueSchema(Schema):
    name = fields.String(attribute="queue.name")
    paused = fields.Boolean(attribute="queue.is_paused", **says("takes jobs and starts none"))
    max_running_jobs = fields.Integer(attribute="queue.max_running_jobs", allow_none=True, **says("null: any number"))
    max_waiting_jobs = fields.Integer(attribute="queue.max_waiting_jobs", allow_none=True, **says("null: any number"))
    weight = fields.Float(attribute="queue.weight", allow_none=True, **says("null: shares the line of all such queues"))
    waiting = fields.Integer()
    running = fields.Integer()
    created_at = Moment(attribute="queue.created_at")


class ChangeQueueSchema(Schema):
    """What is left out stays; null takes a limit away."""

    paused = Flag(**says("true: the queue takes jobs and starts none; what runs goes on"))
    max_running_jobs = Whole(
        1, MOST_JOBS, allow_none=True, **says("at most so many of its jobs run at a time, over all projects")
    )
    max_waiting_jobs = Whole(
        0, MOST_JOBS, allow_none=True, **says("with so many waiting, submitting is refused with 429; 0 takes no jobs")
    )
    weight = Number(
        0.01, 1000, allow_none=True,
        **says("its share of what each project may use; queues without one share one line, of weight 1 in all"),
    )  # fmt: skip


class CreateQueueSchema(ChangeQueueSchema):
    name = Matching(NAME, NAME_RULE, required=True)


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
    pending_reason = fields.String()
    created_at = Moment(attribute="job.created_at")
    queued_at = Moment(attribute="job.queued_at", allow_none=True)
