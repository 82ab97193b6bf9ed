"""The states of a batch."""

from enum import StrEnum


class BatchState(StrEnum):
    """In the words of OpenAI's API, which the row stores too."""

    VALIDATING = "validating"  # the file is inspected, then each request is checked; nothing has run
    FAILED = "failed"  # a request or the file has errors, or a job could not be submitted or failed
    IN_PROGRESS = "in_progress"  # its jobs answer the requests
    FINALIZING = "finalizing"  # its jobs have ended; the files with the answers are written
    COMPLETED = "completed"
    EXPIRED = "expired"  # its window ended first; what was answered until then is in its files
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED = (BatchState.FAILED, BatchState.COMPLETED, BatchState.EXPIRED, BatchState.CANCELLED)
