"""Hides a process's environment, with its credentials, from other processes of the same user."""

import ctypes
import os

PR_SET_DUMPABLE = 4


def hide_from_same_user() -> None:
    """Let only root read this process's environment and memory; must be repeated after every exec.

    Jobs may run as our user, and without a sandbox they could read /proc.
    """
    _set_dumpable(0)


def show_to_same_user() -> None:
    """Undo ``hide_from_same_user`` in a child, before its exec."""
    _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl PR_SET_DUMPABLE: {os.strerror(number)}")
