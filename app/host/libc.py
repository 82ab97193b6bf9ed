"""Calls of the C library and of the kernel that Python has no functions for."""

import ctypes
import os


def libc() -> ctypes.CDLL:
    """The C library of this process, which keeps errno for `checked`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, call: str) -> int:
    """The result of a call just made. Raises OSError, which names the call, for a negative one."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result
