"""Queues and their waiting jobs on the wire."""

from marshmallow import Schema, fields

from app.domain.administration import MOST_JOBS
from app.domain.names import NAME, NAME_RULE
from app.schemas.queries import ListQuerySchema, OrderBy
from app.schemas.strict_fields import Flag, Matching, Moment, Number, Text, Whole, says


class QueueSchema(Schema):
    name = fields.String(attribute="queue.name")
    paused = fields.Boolean(attribute="queue.is_paused", **says("whether the queue accepts jobs without starting any"))
    max_running_jobs = fields.Integer(attribute="queue.max_running_jobs", allow_none=True, **says("null: unlimited"))
    max_waiting_jobs = fields.Integer(attribute="queue.max_waiting_jobs", allow_none=True, **says("null: unlimited"))
    weight = fields.Float(
        attribute="queue.weight",
        allow_none=True,
        **says("null: shares one serving order with all queues without a weight"),
    )
    waiting = fields.Integer()
    running = fields.Integer()
    created_at = Moment(attribute="queue.created_at")


class ChangeQueueSchema(Schema):
    """Omitted fields are unchanged; null removes a limit."""

    paused = Flag(**says("true: the queue accepts jobs and starts none; running jobs continue"))
    max_running_jobs = Whole(
        1, MOST_JOBS, allow_none=True, **says("maximum running jobs of the queue, over all projects")
    )
    max_waiting_jobs = Whole(
        0,
        MOST_JOBS,
        allow_none=True,
        **says("maximum waiting jobs; further submissions are rejected with 429; 0 accepts no jobs"),
    )
    weight = Number(
        0.01,
        1000,
        allow_none=True,
        **says("its share of each project's capacity; queues without a weight count as one queue of weight 1"),
    )


class CreateQueueSchema(ChangeQueueSchema):
    name = Matching(NAME, NAME_RULE, required=True)


class QueuesSchema(Schema):
    queues = fields.List(fields.Nested(QueueSchema))


class WaitingJobQuerySchema(ListQuerySchema):
    """By default in order of service."""

    order_by = OrderBy("priority", "created_at", "name", "status", default="priority")
    queue = Text(longest=63)


class WaitingJobSchema(Schema):
    job_id = fields.String(attribute="job.id")
    name = fields.String(attribute="job.name")
    project = fields.String(attribute="job.project")
    status = fields.String(attribute="job.status")
    queue = fields.String(attribute="job.queue")
    priority = fields.Integer(attribute="job.priority")
    position = fields.Integer(**says("From 1, in order of service, over all that the key sees and that can start"))
    position_in_project = fields.Integer(**says("From 1, in the line of its project, as queue_position of the job"))
    waiting_seconds = fields.Float()
    pending_reason = fields.String()
    created_at = Moment(attribute="job.created_at")
    queued_at = Moment(attribute="job.queued_at", allow_none=True)
