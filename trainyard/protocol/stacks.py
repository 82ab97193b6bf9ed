"""Dumps the stacks of all threads on the supervisor's request, to show where a rank hangs.

The supervisor asks twice. The thread that reads the channel answers a message: it holds the GIL, so the stacks that it
reads do not change. When no thread gets the GIL, that thread cannot answer; then SIGUSR2 is handled in C code that
needs no GIL. The order matters, because a signal that interrupts running threads reads changing frames, which crashes a
busy process about once in 300 times.
"""

import contextlib
import faulthandler
import signal
from io import TextIOWrapper
from pathlib import Path

_kept: list[TextIOWrapper] = []  # the handler writes to these descriptors for the life of the process


def register(run_dir: Path, rank: int) -> bool:
    """Make `write` and SIGUSR2 write RUN_DIR/stacks/rank-N.txt; returns whether they do. An existing handler of the
    script stays.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:
            return False
        directory = run_dir / "stacks"
        directory.mkdir(exist_ok=True)
        file = (directory / f"rank-{rank}.txt").open("a")  # child processes may write, too
        faulthandler.register(signal.SIGUSR2, file=file, all_threads=True, chain=False)
        _kept.append(file)
        return True
    return False


def write() -> None:
    """Write the stacks of all threads now, if `register` succeeded."""
    for file in _kept[-1:]:
        with contextlib.suppress(OSError, ValueError):
            faulthandler.dump_traceback(file, all_threads=True)
