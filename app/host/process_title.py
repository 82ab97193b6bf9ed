"""What /proc shows of a forked process: the command line and environment it would have had as a program of its own.

The kernel shows the memory into which it once put those of the program. A fork writes its own there, as far as they
fit: a fork server is started with room for them (``ROOM``).
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

# An argument and an environment variable of a process that others are forked from.
ROOM = "-" * 400
# Of /proc/PID/stat, counted from the state on: arg_start, arg_end, env_start and env_end of proc(5).
_ARGUMENTS, _ENVIRONMENT = (45, 46), (47, 48)


def show_command_line(words: Sequence[str]) -> None:
    """Show these words in /proc/self/cmdline."""
    _write(_ARGUMENTS, words)


def show_environment(variables: Mapping[str, str]) -> None:
    """Show these variables, and no others, in /proc/self/environ. Call after ``os.environ.clear()``."""
    _write(_ENVIRONMENT, [f"{name}={value}" for name, value in variables.items()])


def _write(place: tuple[int, int], words: Sequence[str]) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(fields[index]) for index in place)
    text = b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
