"""Types of the events in a service's history."""

from enum import StrEnum


class ServiceEventType(StrEnum):
    CREATED = "service.created"
    STATUS = "service.status"  # paused, resumed, being deleted, ended
    CHANGED = "service.changed"
    SCALED = "service.scaled"  # another number of replicas is wanted
    FAILING = "service.failing"  # replicas have failed several times running
    WARNING = "service.warning"
    REPLICA_STARTED = "replica.started"
    REPLICA_DRAINING = "replica.draining"
    REPLICA_ENDED = "replica.ended"
