"""What a fork does to be like a program that was started: no open files of its origin, and the end of a program."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Collection


def close_descriptors(*, but: Collection[int]) -> None:
    """Close every open file of this process with another number."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 – names alone
        if int(name) not in but:
            with contextlib.suppress(OSError):  # the descriptor of this listing is closed already
                os.close(int(name))


def exit_code_of(work: Callable[[], int | None]) -> int:
    """Run it as the body of a program: the exit code, after what Python writes of an error or a message."""
    try:
        return work() or 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001  as any uncaught exception
        traceback.print_exc()
    return 1
