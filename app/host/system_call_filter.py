"""Compiles the filter of system calls for processes in a sandbox (seccomp(2)).

``seccomp.json`` is the profile that Podman and Buildah give containers, unchanged: containers/common 0.50.1,
https://github.com/containers/common, Apache-2.0. A sandbox has none of the capabilities to which the profile gives
more. What is denied here beside that, Docker's profile denies, too, for the most part: namespaces of containers are
made by their engine, and jobs need none of their own.
"""

import errno
import json
import os
import platform
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import pyseccomp
from pyseccomp import ALLOW, EQ, ERRNO, MASKED_EQ, Arg

PROFILE = Path(__file__).with_name("seccomp.json")
# Namespaces and mounts, which give a process of a job capabilities over parts of the kernel that it otherwise lacks;
# keys, which the kernel keeps per user and not per container; and the kernel's log.
DENIED = frozenset(
    {
        *("unshare", "setns", "pivot_root", "chroot", "mount", "umount", "umount2", "mount_setattr", "move_mount"),
        *("open_tree", "fsopen", "fsmount", "fsconfig", "fspick"),
        *("add_key", "keyctl", "request_key", "syslog", "reboot"),
        *("bpf", "perf_event_open", "userfaultfd", "modify_ldt", "name_to_handle_at", "open_by_handle_at"),
    }
)
# The C library does without these where the kernel has none of them. The first can't be filtered by its flags.
UNKNOWN = frozenset({"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"})
# clone(2): CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NEW_NAMESPACES = 0x7E020000
_PAIRS = "socketpair"  # one of datagrams sends to other addresses, too
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_NETLINK_PROTOCOLS = (0, 20)  # of linux/netlink.h: routes, and InfiniBand
# Calls that set the mode of a file, and which of their arguments it is.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
# Those that do so if they make one: the argument with flags, too. The mode of openat2 is in memory, out of reach.
_OPENS, _OPENS_BY_MEMORY = {"open": (1, 2), "openat": (2, 3)}, "openat2"
_MAKES = os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)
_SET_IDS = stat.S_ISUID | stat.S_ISGID
_DECIDED_HERE = DENIED | UNKNOWN | {"clone", "socket"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class _Rule(TypedDict):
    names: list[str]
    action: str
    errnoRet: int
    args: list[dict[str, Any]]


def compiled(*, plain_modes: bool = False, sockets: bool = True) -> bytes:
    """The filter for this machine, as ``exported``.

    ``plain_modes``: calls that would make a file set-user-ID or set-group-ID fail. ``sockets``: new ones may be opened,
    also those of this machine.
    """
    built = pyseccomp.SyscallFilter(ERRNO(errno.ENOSYS))
    decided = _DECIDED_HERE | ({*_MODES, *_OPENS, _OPENS_BY_MEMORY} if plain_modes else set())
    decided |= set() if sockets else {_PAIRS}
    for rule in _rules():
        action = ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else ERRNO(rule["errnoRet"])
        for number in numbers(set(rule["names"]) - decided):
            built.add_rule(action, number, *_conditions(rule))
    if plain_modes:
        _allow_plain_modes(built)
    for number in numbers(DENIED):
        built.add_rule(ERRNO(errno.EPERM), number)
    built.add_rule(ALLOW, "clone", Arg(0, MASKED_EQ, _NEW_NAMESPACES, 0))
    if sockets:
        _allow_sockets(built)
    else:
        for number in numbers(["socket", _PAIRS]):
            built.add_rule(ERRNO(errno.EPERM), number)
    return exported(built)


def _allow_sockets(built: pyseccomp.SyscallFilter) -> None:
    for family in _FAMILIES:
        built.add_rule(ALLOW, "socket", Arg(0, EQ, family))
    for protocol in _NETLINK_PROTOCOLS:
        built.add_rule(ALLOW, "socket", Arg(0, EQ, socket.AF_NETLINK), Arg(2, EQ, protocol))


def _allow_plain_modes(built: pyseccomp.SyscallFilter) -> None:
    for name, mode in _MODES.items():
        for number in numbers([name]):
            built.add_rule(ALLOW, number, Arg(mode, MASKED_EQ, _SET_IDS, 0))
            for bit in (stat.S_ISUID, stat.S_ISGID):
                built.add_rule(ERRNO(errno.EPERM), number, Arg(mode, MASKED_EQ, bit, bit))
    for name, (flags, mode) in _OPENS.items():
        for number in numbers([name]):
            built.add_rule(ALLOW, number, Arg(flags, MASKED_EQ, _MAKES, 0))
            built.add_rule(ALLOW, number, Arg(mode, MASKED_EQ, _SET_IDS, 0))


def exported(built: pyseccomp.SyscallFilter) -> bytes:
    """A sequence of struct sock_filter of linux/filter.h."""
    with open(os.memfd_create("filter"), "w+b") as file:  # noqa: PTH123
        built.export_bpf(file)
        file.seek(0)
        return file.read()


def numbers(names: Iterable[str]) -> Iterator[int]:
    """Not those of calls that only other architectures have, or that this libseccomp does not know."""
    for name in names:
        with suppress(ValueError, OSError, RuntimeError):
            number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
            if number >= 0:
                yield number


def _rules() -> Iterator[_Rule]:
    """Those of the profile for a process without capabilities on this machine."""
    architecture = _ARCHITECTURES.get(platform.machine(), "")
    for rule in json.loads(PROFILE.read_text())["syscalls"]:
        includes = rule.get("includes") or {}
        if not includes.get("caps") and architecture in includes.get("arches", [architecture]):
            yield rule


def _conditions(rule: _Rule) -> list[Arg]:
    return [
        Arg(each["index"], getattr(pyseccomp, each["op"].removeprefix("SCMP_CMP_")), each["value"])
        for each in rule.get("args") or ()
    ]
