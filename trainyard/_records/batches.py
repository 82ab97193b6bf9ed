"""The fields of a batch in the API's answers, as OpenAI names them."""

from typing import Any, TypedDict

BATCH_TERMINAL = frozenset({"completed", "failed", "expired", "cancelled"})


class RequestCounts(TypedDict):
    total: int
    completed: int
    failed: int


class RequestBatch(TypedDict):
    """A batch of requests. Times are Unix seconds."""

    id: str
    object: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    errors: dict[str, Any] | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    model: str | None
    usage: dict[str, Any]
    metadata: dict[str, str] | None
    trainyard: dict[str, Any]
