"""Tables and relations, no rules. Importing this package makes every table known to the metadata."""

from app.models.api_key import ApiKey
from app.models.artifact import Artifact
from app.models.attempt import Attempt
from app.models.audit_entry import AuditEntry
from app.models.base import Base
from app.models.checkpoint import Checkpoint
from app.models.idempotency import IdempotentReply
from app.models.inspection import Inspection
from app.models.job import Job, JobLabel
from app.models.job_event import JobEvent
from app.models.lease import Lease
from app.models.metric import Metric, MetricSummary
from app.models.node import Device, Node, Reservation
from app.models.process import ProcessBeat
from app.models.project import Project
from app.models.queue import Queue, QueueWait
from app.models.webhook import Webhook, WebhookDelivery

__all__ = [
    "ApiKey",
    "Artifact",
    "Attempt",
    "AuditEntry",
    "Base",
    "Checkpoint",
    "Device",
    "IdempotentReply",
    "Inspection",
    "Job",
    "JobEvent",
    "JobLabel",
    "Lease",
    "Metric",
    "MetricSummary",
    "Node",
    "ProcessBeat",
    "Project",
    "Queue",
    "QueueWait",
    "Reservation",
    "Webhook",
    "WebhookDelivery",
]
