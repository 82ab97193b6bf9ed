"""The kernel timer that kills a supervisor which could not renew its lease in time.

The timer belongs to the kernel, so it fires although the process is stopped, swapped out or stuck. With the
supervisor die its ranks: the sandbox carries PR_SET_PDEATHSIG.
"""

import ctypes
import os
import signal
import time

CLOCK_BOOTTIME = 7  # counts while the machine sleeps, and can't be set
TIMER_ABSTIME = 1
SIGEV_SIGNAL = 0


class _SignalValue(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("pointer", ctypes.c_void_p))


class _SignalEvent(ctypes.Structure):
    _fields_ = (
        ("value", _SignalValue),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


def boot_seconds() -> float:
    """The current time on the fence's clock."""
    return time.clock_gettime(CLOCK_BOOTTIME)


class Fence:
    """One timer of this process; not inherited by children, nor over an exec."""

    def __init__(self) -> None:
        self._libc = _library()
        self._timer, self._closed = ctypes.c_void_p(), False
        event = _SignalEvent()
        event.signo = signal.SIGKILL
        event.notify = SIGEV_SIGNAL
        self._check(self._libc.timer_create(CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer)))

    def arm(self, sent_at: float, seconds: float) -> None:
        """SIGKILL this process ``seconds`` after ``sent_at`` (from ``boot_seconds``), at once if that is over already.

        ``sent_at`` is when the renewal that is now confirmed was sent: the database may have counted from then.
        """
        due = sent_at + seconds
        spec = _TimerSpec()
        spec.value.seconds = int(due)
        spec.value.nanoseconds = int((due % 1) * 1e9) or 1  # all zero would disarm
        self._check(self._libc.timer_settime(self._timer, TIMER_ABSTIME, ctypes.byref(spec), None))

    def disarm(self) -> None:
        """Stop the timer: no process of the attempt is left, so nothing needs to be killed."""
        self._check(self._libc.timer_settime(self._timer, 0, ctypes.byref(_TimerSpec()), None))

    def close(self) -> None:
        """Delete the timer: the process may live on, for another attempt with a fence of its own."""
        if not self._closed:
            self._closed = True
            self._check(self._libc.timer_delete(self._timer))

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"fence timer: {os.strerror(number)}")


def _library() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    # glibc before 2.34 keeps the timers in a library of their own.
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
