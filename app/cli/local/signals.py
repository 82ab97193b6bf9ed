"""Synchronous signal handling: blocked signals are waited for instead of interrupting arbitrary code."""

import signal

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
WATCHED = STOP | {signal.SIGCHLD}


def block() -> None:
    """Block the watched signals until ``wait`` receives them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def wait(seconds: float) -> bool:
    """Sleep until a child ends or the time has passed; True on a stop signal."""
    received = signal.sigtimedwait(WATCHED, max(seconds, 0.0))
    return received is not None and received.si_signo in STOP
