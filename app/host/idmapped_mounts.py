"""Mounts in which files of this process's user belong to another one, without a change on the disk.

See mount_setattr(2), open_tree(2), move_mount(2) and user_namespaces(7). The programs of util-linux make such mounts
from 2.39 on only, and the C library has no functions for these calls before 2.36.
"""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.host.libc import checked, libc

PLACE = Path("/tmp")  # noqa: S108 – where a namespace of mounts of its own has what is attached
MOST_ID = 2**32 - 1  # stands for no user
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on all machines since Linux 5.1
_NAMES = {_OPEN_TREE: "open_tree", _MOVE_MOUNT: "move_mount", _MOUNT_SETATTR: "mount_setattr"}
_CLONE, _CLOEXEC, _RECURSIVE, _EMPTY_PATH = 1, os.O_CLOEXEC, 0x8000, 0x1000
_FROM_EMPTY_PATH = 4
_IDMAP = 0x00100000
_HERE = -100  # AT_FDCWD
_NEW_MOUNTS, _SLAVE, _ALL_BELOW = 0x00020000, 0x80000, 0x4000
# It has a user namespace when it writes, and keeps it until its input ends.
_HOLDER = ("unshare", "--user", "sh", "-c", "echo; read end")


class _Attributes(ctypes.Structure):
    """struct mount_attr of linux/mount.h"""

    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("namespace", ctypes.c_uint64),
    )


def user_namespace(uid: int) -> int:
    """A descriptor of a user namespace for mounts in which root and the user (and group) ``uid`` change places.

    Raises OSError.
    """
    with subprocess.Popen(_HOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stderr is not None  # noqa: S101, PT018 – they are pipes
        if holder.stdout.read(1) != b"\n":
            raise OSError(f"no user namespace can be made: {holder.stderr.read().decode(errors='replace').strip()}")
        lines = [(0, uid, 1), (1, 1, uid - 1), (uid, 0, 1), (uid + 1, uid + 1, MOST_ID - uid - 1)]
        text = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{holder.pid}/{name}").write_text(text)
        return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def tree(path: Path | int, namespace: int | None = None) -> int:
    """A descriptor of a mount of this file or directory, with all mounts below it, that is attached nowhere yet.

    ``path`` may be a descriptor. ``namespace``: of ``user_namespace``. Raises OSError: many file systems of networks
    can't be mapped.
    """
    at = (path, b"", _EMPTY_PATH) if isinstance(path, int) else (_HERE, os.fsencode(path), 0)
    found = _call(_OPEN_TREE, at[0], at[1], at[2] | _CLONE | _CLOEXEC | _RECURSIVE)
    if namespace is None:
        return found
    asked = _Attributes(_IDMAP, 0, 0, namespace)
    try:
        _call(_MOUNT_SETATTR, found, b"", _EMPTY_PATH | _RECURSIVE, ctypes.byref(asked), ctypes.sizeof(asked))
    except OSError as error:
        os.close(found)
        raise OSError(error.errno, f"the owners of {path} can't be mapped: {os.strerror(error.errno or 0)}") from error
    return found


def attach(mount: int, target: Path) -> None:
    """Raises OSError."""
    _call(_MOVE_MOUNT, mount, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH)


def mount(kind: str, target: Path, options: str) -> None:
    """A new file system of this kind. Raises OSError."""
    _mount(kind.encode(), os.fsencode(target), kind.encode(), 0, options.encode())


def mount_namespace(fill: Callable[[], object]) -> int:
    """A descriptor of a namespace of mounts: a copy of this one, with PLACE empty after ``fill`` has read from it, and
    with what ``fill`` then attaches there. Raises OSError.

    A thread makes it, as it can have such a namespace of its own.
    """
    result: list[int | BaseException] = []

    def make() -> None:
        try:
            checked(libc().unshare(_NEW_MOUNTS), "unshare")
            # What the machine unmounts is unmounted here, too; what is mounted here is not there.
            _mount(b"none", b"/", None, _SLAVE | _ALL_BELOW, None)
            fill()
            result.append(os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
        except BaseException as error:  # noqa: BLE001 – raised again below
            result.append(error)

    thread = threading.Thread(target=make, name="mounts")
    thread.start()
    thread.join()
    if isinstance(found := result[0], BaseException):
        raise found
    return found


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None) -> None:
    checked(libc().mount(source, target, kind, ctypes.c_ulong(flags), options), f"mount {os.fsdecode(target)}")


def _call(number: int, *arguments: Any) -> int:
    return checked(libc().syscall(ctypes.c_long(number), *arguments), _NAMES[number])
