"""Lets a supervisor see where a rank hangs: the stacks of all its threads are written to a file when it asks.

It asks twice. A message is answered by the thread that reads the channel: it holds the interpreter's lock, so nothing
moves below the stacks that it reads. Where no thread gets that lock the reader can't answer; then SIGUSR2 is, in C code
that needs no lock. In this order, because a signal that meets running threads reads frames that change: it ends the
process, about once in 300 times on a busy one.
"""

import contextlib
import faulthandler
import signal
from io import TextIOWrapper
from pathlib import Path

_kept: list[TextIOWrapper] = []  # the handler writes to their descriptors for as long as the process lives


def register(run_dir: Path, rank: int) -> bool:
    """Whether `write` and SIGUSR2 now write RUN_DIR/stacks/rank-N.txt; a handler of the script's own stays."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:
            return False
        directory = run_dir / "stacks"
        directory.mkdir(exist_ok=True)
        file = (directory / f"rank-{rank}.txt").open("a")  # others of its processes may write, too
        faulthandler.register(signal.SIGUSR2, file=file, all_threads=True, chain=False)
        _kept.append(file)
        return True
    return False


def write() -> None:
    """Write the stacks of all threads now, if `register` could."""
    for file in _kept[-1:]:
        with contextlib.suppress(OSError, ValueError):
            faulthandler.dump_traceback(file, all_threads=True)
