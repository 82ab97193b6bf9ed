"""Options of this process that the kernel keeps. Imports little: processes that people wait for start with it."""

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG = 1
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: two words for each set


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel SIGKILL this process when the thread that forked it ends.

    ``parent_pid``, read by the parent before the fork, closes the race with a parent that is already dead.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def drop_capabilities() -> None:
    """Keep none; whether a later exec gives some back is for the caller to rule out. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")


def allow_open_files(most: int) -> None:
    """Up to so many, as far as the hard limit lets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def prctl(option: int, value: int, address: int = 0) -> None:
    """Set one option of this process; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(address), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
