"""Why a script fails, in the words that the platform knows."""

import errno

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def error_type(error: BaseException, *, otherwise: str = "SCRIPT_ERROR") -> str:
    """The error type to report for what a script raised."""
    # torch's own class is known by its name: torch must not be imported for this.
    if type(error).__name__ == "OutOfMemoryError":
        return "OUT_OF_MEMORY"
    if isinstance(error, MemoryError):
        return "HOST_OUT_OF_MEMORY"
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return "DISK_FULL"
    return otherwise
