"""Tables and relations, without business rules. Importing this package registers every table in the metadata."""

from app.models.api_key import ApiKey
from app.models.audit_entry import AuditEntry
from app.models.base import Base
from app.models.batch import Batch, BatchJob
from app.models.change import Change
from app.models.file import File, Upload, UploadPart
from app.models.idempotency import IdempotentReply
from app.models.interactive import InteractiveEndpoint, InteractiveSession
from app.models.jobs.artifact import Artifact
from app.models.jobs.attempt import Attempt
from app.models.jobs.checkpoint import Checkpoint
from app.models.jobs.inspection import Inspection
from app.models.jobs.job import Job, JobLabel
from app.models.jobs.job_deletion import JobDeletion
from app.models.jobs.job_event import JobEvent
from app.models.jobs.lease import Lease
from app.models.jobs.metric import Metric, MetricSummary
from app.models.jobs.shard import Shard
from app.models.kubernetes_object import StoredBaseModel, TrainingRuntime
from app.models.model_permission import ModelPermission
from app.models.node import CachedSource, Device, Node, NodeFault, NodeRecord, NodeSample, Reservation, StuckDevice
from app.models.process import ProcessBeat
from app.models.project import Project, ProjectUsage
from app.models.queue import Queue, QueueWait
from app.models.registered_model import RegisteredModel
from app.models.service import ModelUsage, Replica, Service, ServiceEvent, ServiceLoad
from app.models.sweep import Sweep, SweepCount, SweepEvent, Trial, TrialReport
from app.models.web_session import WebSession
from app.models.web_user import WebUser
from app.models.webhook import Webhook, WebhookDelivery

__all__ = [
    "ApiKey",
    "Artifact",
    "Attempt",
    "AuditEntry",
    "Base",
    "Batch",
    "BatchJob",
    "CachedSource",
    "Change",
    "Checkpoint",
    "Device",
    "File",
    "IdempotentReply",
    "Inspection",
    "InteractiveEndpoint",
    "InteractiveSession",
    "Job",
    "JobDeletion",
    "JobEvent",
    "JobLabel",
    "Lease",
    "Metric",
    "MetricSummary",
    "ModelPermission",
    "ModelUsage",
    "Node",
    "NodeFault",
    "NodeRecord",
    "NodeSample",
    "ProcessBeat",
    "Project",
    "ProjectUsage",
    "Queue",
    "QueueWait",
    "RegisteredModel",
    "Replica",
    "Reservation",
    "Service",
    "ServiceEvent",
    "ServiceLoad",
    "Shard",
    "StoredBaseModel",
    "StuckDevice",
    "Sweep",
    "SweepCount",
    "SweepEvent",
    "TrainingRuntime",
    "Trial",
    "TrialReport",
    "Upload",
    "UploadPart",
    "WebSession",
    "WebUser",
    "Webhook",
    "WebhookDelivery",
]
