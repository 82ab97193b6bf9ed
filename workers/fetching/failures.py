"""Why something could not be fetched, as exceptions that know the error type people will see."""


class FetchFailed(Exception):
    """``error_type`` is one of ``domain.errors.ERROR_TYPES``; None: what says that this kind of thing is not there."""

    error_type: str | None = "STORAGE_ERROR"
    too_large = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotThere(FetchFailed):
    """It does not exist, or whoever asks may not read it."""

    error_type = None


class Missing(NotThere):
    """The server has nothing by this name, whoever asks."""


class Refused(FetchFailed):
    """The rules of this installation do not allow it, or do not provide for it."""

    error_type = "INVALID_CONFIG"


class Unusable(FetchFailed):
    """It was found, and can't be data."""

    error_type = "DATA_INVALID"


class TooLarge(Unusable):
    """It is larger than the limit of whoever asks."""

    too_large = True


class Trouble(FetchFailed):
    """Network or disk; another attempt may succeed."""


class NoRoom(Trouble):
    """On the node's disk, or in the share of it that the cache may have; it waits until there is some."""

    error_type = "DISK_FULL"
