"""Calls of the kernel that Python has no functions for. Standard library only."""

import ctypes
import os
import platform

libc = ctypes.CDLL(None, use_errno=True)
# (x86_64, aarch64), of the kernel's asm/unistd.h; -1: there is none
_NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "modify_ldt": (154, -1),
    "mq_open": (240, 180),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "userfaultfd": (323, 282),
}
_COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]

MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUSER = 0x20000, 0x2000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
PTRACE_SEIZE = 0x4206


def call(name: str, *arguments: object) -> int:
    """Numbers and ctypes' values; a long each. Raises OSError."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(libc.syscall(ctypes.c_long(_NUMBERS[name][_COLUMN]), *words))


def checked(result: int) -> int:
    """The result of a function of the C library. Raises OSError."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def unshare(flags: int) -> None:
    checked(libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    checked(libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()))


def unmount(target: str) -> None:
    checked(libc.umount2(target.encode(), MNT_DETACH))


def seize(pid: int) -> None:
    """Become the tracer of a process without stopping it."""
    libc.ptrace.restype = ctypes.c_long
    checked(libc.ptrace(PTRACE_SEIZE, pid, ctypes.c_void_p(), ctypes.c_void_p()))
