"""Landlock: a process keeps itself, and all that it starts, out of files that are not listed; see landlock(7).

It needs no permission and no namespace. What it can't do: hide names, sockets of the file system, and the network.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

from app.domain.nodes.sandboxes import UNFILTERED, UNLOCKED
from app.host.bubblewrap import TRIAL_SECONDS, Lack
from app.host.libc import checked, libc
from app.host.process_options import prctl
from app.host.system_calls import NoFilter, filter_program

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on all machines
_PR_SET_NO_NEW_PRIVS, _VERSION, _PATH_BENEATH = 38, 1, 1
LEAST_VERSION = 3  # Linux 6.2: earlier ones let a process truncate any file of its user's
_IOCTL_VERSION, _SCOPES_VERSION, _ALL_SCOPES = 5, 6, 3  # abstract sockets, and signals, to processes outside


_KEPT_OUT = 7
_TRIAL = f"""
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from app.host.landlock import READ, restrict_files
from app.host.system_calls import restrict
allowed, other = map(pathlib.Path, sys.argv[2:])
if program := sys.stdin.buffer.read():
    restrict(program)
restrict_files([(allowed, READ)])
allowed.read_bytes()
try:
    other.read_bytes()
except PermissionError:
    sys.exit({_KEPT_OUT})
"""


class Right(IntFlag):
    """Of linux/landlock.h."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIRECTORY = 1 << 3
    TRUNCATE = 1 << 14
    IOCTL = 1 << 15


READ = Right.EXECUTE | Right.READ_FILE | Right.READ_DIRECTORY
ALL = Right((1 << 16) - 1)
_OF_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL


def version() -> int:
    """Of the kernel's Landlock; 0: it has none, or it is switched off."""
    found: int = libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    return max(0, found)


def lack_of_landlock(*, in_sandbox: bool = False) -> Lack | None:
    """Why it can't confine a program here, found by trial; None if it can.

    ``in_sandbox``: one that a sandbox's filter of system calls holds already, as it does an agent.
    """
    if (found := version()) < LEAST_VERSION:
        detail = f"this kernel has version {found}, and {LEAST_VERSION} is needed" if found else "this kernel has none"
        return Lack(kind=UNLOCKED, detail=f"Landlock: {detail} (Linux 6.2, with landlock switched on)")
    try:
        program = filter_program()
        if not _holds(program if in_sandbox else b""):
            where = " behind the filter of system calls" if in_sandbox else ""
            return Lack(kind=UNLOCKED, detail=f"Landlock: no process could be kept out of a file{where}")
    except NoFilter as error:
        return Lack(kind=UNFILTERED, detail=str(error))
    except OSError as error:
        return Lack(kind=UNLOCKED, detail=f"Landlock: {error}")
    return None


def _holds(program: bytes) -> bool:
    """Whether a child with this filter, or none, that may read one file can't read another."""
    with tempfile.TemporaryDirectory() as folder:
        allowed, other = Path(folder, "allowed"), Path(folder, "other")
        allowed.touch()
        other.touch()
        command = [sys.executable, "-I", "-c", _TRIAL, str(Path(__file__).parents[2]), str(allowed), str(other)]
        done = subprocess.run(command, input=program, capture_output=True, timeout=TRIAL_SECONDS, check=False)
        return done.returncode == _KEPT_OUT


def restrict_files(rules: Iterable[tuple[Path, int]], *, opened: Iterable[int] = ()) -> None:
    """Nothing but these paths, and what is below them, each with its rights. One thread only.

    ``opened``: descriptors of files that may be opened again, whatever their paths; one that the kernel takes no rule
    for may not. Paths that don't exist are left out. Raises OSError.
    """
    kernel = version()
    known = ALL if kernel >= _IOCTL_VERSION else ALL & ~Right.IOCTL
    attributes = struct.pack("=QQQ", known, 0, _ALL_SCOPES if kernel >= _SCOPES_VERSION else 0)
    size = 24 if kernel >= _SCOPES_VERSION else 8
    made = libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    ruleset = checked(made, "landlock_create_ruleset")
    try:
        for path, rights in rules:
            _add(ruleset, path, known & rights)
        for descriptor in opened:
            with contextlib.suppress(OSError):  # the lock itself matters more
                _add_opened(ruleset, descriptor, known, "of an open file")
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        checked(libc().syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def stay_below(directory: Path, *, outputs: Iterable[int] = (), required: bool = False) -> bool:
    """Reach no file but by a path that begins there, whatever the rights of the user, and send no signal to processes
    that are not of this one's making (since Linux 6.12). One thread only.

    It holds in other namespaces of mounts, too: a path there leads through other mounts. Of ``outputs``, descriptors,
    the terminals may be opened again by names such as /dev/stdout, wherever their paths lie; pipes may anyhow. Where
    the kernel can't see to it, or this process is in as many such restrictions as there may be (E2BIG), the result is
    False, or OSError if it is ``required``.
    """
    try:
        if (found := version()) < LEAST_VERSION:
            raise OSError(errno.EOPNOTSUPP, f"Landlock {LEAST_VERSION} is required here, and there is version {found}")
        restrict_files([(directory, ALL)], opened=[each for each in outputs if os.isatty(each)])
    except OSError:
        if required:
            raise
        return False
    return True


def _add(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        _add_opened(ruleset, descriptor, rights, str(path))
    finally:
        os.close(descriptor)


def _add_opened(ruleset: int, descriptor: int, rights: int, name: str) -> None:
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        rights &= _OF_FILES
    rule = struct.pack("=Qi", rights, descriptor)
    checked(libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock_add_rule {name}")
