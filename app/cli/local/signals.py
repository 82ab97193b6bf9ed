"""Signals as something to wait for, instead of handlers that run in the middle of anything."""

import signal

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
WATCHED = STOP | {signal.SIGCHLD}


def hold() -> None:
    """From now on these signals wait until they are asked for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def wait(seconds: float) -> bool:
    """Sleep, at most until a child ends; True when somebody asked us to stop."""
    received = signal.sigtimedwait(WATCHED, max(seconds, 0.0))
    return received is not None and received.si_signo in STOP
