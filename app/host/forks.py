"""What a fork does to be like a program that was started: no open files of its origin, and the end of a program."""

import contextlib
import os
import sys
from collections.abc import Callable, Collection
from typing import NoReturn


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
    except BaseException as error:  # noqa: BLE001  as any uncaught exception
        sys.excepthook(type(error), error, error.__traceback__)
    return 1


def run_as_program(work: Callable[[], int], *, at_end: Callable[[int], object] = id) -> NoReturn:
    """End this process with the exit code that a program with this body would have, after ``at_end(code)``.

    The interpreter is not taken apart: that would copy most of what a fork shares with its origin.
    """
    code = exit_code_of(work)
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):  # who should hear of it is gone
        at_end(code)
    os._exit(code)
