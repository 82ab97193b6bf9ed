"""The fields of a file in the API's answers, as OpenAI names them."""

from typing import TypedDict


class StoredFile(TypedDict):
    """A file of a project. Times are Unix seconds."""

    id: str
    object: str
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: str
    status_details: str | None
