"""Keeps a program to one process and to memory of its own, so that its limit of memory holds for all it does.

RLIMIT_DATA holds for each process by itself, and not for memory that may be shared; RLIMIT_NPROC never for root's
processes. Control groups, which would hold both, are there for node workers only.
"""

import errno
import mmap

import pyseccomp
from pyseccomp import ALLOW, ERRNO, MASKED_EQ, Arg

from app.host.system_call_filter import exported, numbers
from app.host.system_calls import restrict

_PROCESSES = ("fork", "vfork")
_SHARED_MEMORY = ("memfd_create", "memfd_secret", "shmget")
_CLONE_THREAD = 0x10000
_MMAP_FLAGS = 3  # the argument's place


def keep_to_one_process() -> None:
    """Threads may start. For programs in a sandbox, whose own filter holds, too; one thread only.

    Raises OSError.
    """
    built = pyseccomp.SyscallFilter(ALLOW)
    for number in numbers((*_PROCESSES, *_SHARED_MEMORY)):
        built.add_rule(ERRNO(errno.EPERM), number)
    built.add_rule(ERRNO(errno.EPERM), "clone", Arg(0, MASKED_EQ, _CLONE_THREAD, 0))
    built.add_rule(ERRNO(errno.ENOSYS), "clone3")  # its flags can't be filtered; the C library uses clone
    built.add_rule(ERRNO(errno.ENOMEM), "mmap", Arg(_MMAP_FLAGS, MASKED_EQ, mmap.MAP_SHARED, mmap.MAP_SHARED))
    restrict(exported(built))
