"""Hides a process's environment, with its credentials, from other processes of the same user."""

from app.host.process_options import prctl

PR_SET_DUMPABLE = 4


def hide_from_same_user() -> None:
    """Let only root read this process's environment and memory; must be repeated after every exec.

    Jobs may run as our user, and without a sandbox they could read /proc.
    """
    prctl(PR_SET_DUMPABLE, 0)


def show_to_same_user() -> None:
    """Undo ``hide_from_same_user`` in a child, before its exec."""
    prctl(PR_SET_DUMPABLE, 1)
