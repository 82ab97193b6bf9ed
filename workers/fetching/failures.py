"""Fetch failures, with the error type shown to users."""


class FetchFailed(Exception):
    """``error_type`` is one of ``domain.errors.ERROR_TYPES``; None: the not-found type of the item's kind."""

    error_type: str | None = "STORAGE_ERROR"
    too_large = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotThere(FetchFailed):
    """It does not exist, or the requester may not read it."""

    error_type = None


class Missing(NotThere):
    """The server has nothing by this name, for any requester."""


class FetchRefused(FetchFailed):
    """The rules of this installation forbid it, or do not provide for it."""

    error_type = "INVALID_CONFIG"


class Unusable(FetchFailed):
    """It exists, but is not usable as data."""

    error_type = "DATA_INVALID"


class FetchTooLarge(Unusable):
    """It exceeds the caller's limit."""

    too_large = True


class Trouble(FetchFailed):
    """Network or disk failure; another attempt may succeed."""


class HubUnreachable(Trouble):
    """The hub, or the repository with the code, does not answer, or the connection to it broke."""

    error_type = "HUB_UNREACHABLE"


class NoRoom(Trouble):
    """The node's disk, or the cache's share of it, is full; retried until there is space."""

    error_type = "DISK_FULL"
