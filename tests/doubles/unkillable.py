"""Processes that SIGKILL does not end, as with a driver or a network file system that hangs in the kernel."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HOLDER = Path(__file__).parents[1] / "scripts" / "hold_back_death.py"


@contextmanager
def unkillable(pid: int) -> Iterator[Callable[[], None]]:
    """Nothing ends the process until the block is left; then it dies of what it was sent meanwhile.

    Gives what lets it go before.
    """
    with subprocess.Popen([sys.executable, str(HOLDER), str(pid)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n", f"process {pid} can't be held"
        try:
            yield holder.kill
        finally:
            holder.kill()
