"""Maps a script's exceptions to the platform's error types."""

import errno

from trainyard._hooks.halts import HaltMissed

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def error_type(error: BaseException, *, otherwise: str = "SCRIPT_ERROR") -> str:
    """The error type to report for an exception of a script."""
    # torch's own class is matched by name, because torch must not be imported for this.
    if type(error).__name__ == "OutOfMemoryError":
        return "OUT_OF_MEMORY"
    if isinstance(error, MemoryError):
        return "HOST_OUT_OF_MEMORY"
    if isinstance(error, HaltMissed):
        return "INVALID_CONFIG"
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return "DISK_FULL"
    return otherwise
