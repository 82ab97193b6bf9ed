"""Why a model could not be published; used in child processes."""


class NotPublished(Exception):
    """``transient``: another try may succeed."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.transient = transient


class AlreadyClaimed(Exception):
    """Another process was faster and owns the directory now."""
