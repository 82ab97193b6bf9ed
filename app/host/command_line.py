"""What /proc shows of this process: a fork that becomes another program is found by that program's command line."""

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PR_SET_NAME = 15
PR_SET_MM = 35
PR_SET_MM_MAP = 14

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sbrk.restype = ctypes.c_uint64
# The kernel reads it for every reader of /proc, so it must live as long as the process.
_shown = ctypes.create_string_buffer(1)


class _MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map``, which the kernel takes as a whole."""

    _fields_ = (
        ("start_code", ctypes.c_uint64),
        ("end_code", ctypes.c_uint64),
        ("start_data", ctypes.c_uint64),
        ("end_data", ctypes.c_uint64),
        ("start_brk", ctypes.c_uint64),
        ("brk", ctypes.c_uint64),
        ("start_stack", ctypes.c_uint64),
        ("arg_start", ctypes.c_uint64),
        ("arg_end", ctypes.c_uint64),
        ("env_start", ctypes.c_uint64),
        ("env_end", ctypes.c_uint64),
        ("auxv", ctypes.c_uint64),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_int32),
    )


def show_command_line(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Let /proc show this command line and environment instead of those the process was started with.

    Raises OSError where the kernel can't.
    """
    global _shown  # noqa: PLW0603
    words = _joined(command)
    variables = _joined(f"{name}={value}" for name, value in environment.items())
    shown = ctypes.create_string_buffer(words + variables, len(words) + len(variables))
    memory = _present_map()
    memory.arg_start = ctypes.addressof(shown)
    memory.arg_end = memory.env_start = memory.arg_start + len(words)
    memory.env_end = memory.env_start + len(variables)
    name = ctypes.create_string_buffer(os.fsencode(Path(command[0]).name))
    memory.brk = _libc.sbrk(0)  # last, because an allocation may move it
    _prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(memory), ctypes.sizeof(memory))
    _shown = shown
    _prctl(PR_SET_NAME, ctypes.addressof(name))


def _present_map() -> _MemoryMap:
    # Fields by their numbers in proc(5), of which the first two stand before the last parenthesis.
    fields = ["", "", "", *Path("/proc/self/stat").read_text().rpartition(")")[2].split()]
    return _MemoryMap(
        start_code=int(fields[26]),
        end_code=int(fields[27]),
        start_data=int(fields[45]),
        end_data=int(fields[46]),
        start_brk=int(fields[47]),
        start_stack=int(fields[28]),
        exe_fd=-1,  # the same program
    )


def _joined(texts: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(text) + b"\0" for text in texts)


def _prctl(option: int, *values: int) -> None:
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
