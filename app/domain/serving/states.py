"""The states of a service."""

from enum import StrEnum


class ServiceState(StrEnum):
    ACTIVE = "ACTIVE"  # has as many replicas as there is work for, which may be none
    PAUSED = "PAUSED"  # its replicas are drained; requests are refused
    ENDING = "ENDING"  # deleted; its replicas are being drained
    ENDED = "ENDED"
