"""Types of the events of a batch, in the words of OpenAI's API."""

from enum import StrEnum

from app.domain.batches.states import BatchState


class BatchEventType(StrEnum):
    """One for each state that a batch ends in."""

    COMPLETED = f"batch.{BatchState.COMPLETED}"
    FAILED = f"batch.{BatchState.FAILED}"
    EXPIRED = f"batch.{BatchState.EXPIRED}"
    CANCELLED = f"batch.{BatchState.CANCELLED}"
