"""The filter of system calls for processes in a sandbox (seccomp(2)): bubblewrap's to read, and a process's own."""

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.host.process_options import prctl

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_INSTRUCTION_BYTES = 8  # struct sock_filter


class NoFilter(RuntimeError):
    """There is no library that builds a filter."""


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h"""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def filter_program(*, plain_modes: bool = True) -> bytes:
    """The filter for this machine: a sequence of struct sock_filter. Raises NoFilter.

    ``plain_modes``: no file can be made set-user-ID or set-group-ID.
    """
    return _programs()[plain_modes]


def offline_program() -> bytes:
    """The same for a process that opens no socket. Raises NoFilter."""
    return _compiler()(plain_modes=True, sockets=False)


@functools.cache
def _programs() -> dict[bool, bytes]:
    """By ``plain_modes``; both, so that the children of a process that asked for one have the other, too."""
    compiled = _compiler()
    return {plain: compiled(plain_modes=plain) for plain in (False, True)}


def _compiler() -> Callable[..., bytes]:
    try:
        from app.host import system_call_filter  # noqa: PLC0415  it loads libseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise NoFilter(f"libseccomp can't be used: {error}") from error
    return system_call_filter.compiled


@contextmanager
def filter_file(*, plain_modes: bool = False) -> Iterator[int]:
    """A file to inherit from which bubblewrap reads the filter, once. Raises NoFilter."""
    program = filter_program(plain_modes=plain_modes)
    reader, writer = os.pipe()
    try:
        os.write(writer, program)  # a pipe holds more
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


def restrict(program: bytes) -> None:
    """Filter the system calls of this process, and of all that it starts from now on. One thread only.

    Raises OSError.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    filled = _Program(len(program) // _INSTRUCTION_BYTES, ctypes.cast(instructions, ctypes.c_void_p))
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filled))
