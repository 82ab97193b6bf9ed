"""Becomes a command that sees parts of volume claims at paths where no other job can exchange them.

Its arguments are a directory, pairs of a part and its claim, `--` and the command. Part N is mounted at N below the
directory, in a namespace of mounts of the command's own.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.host.libc import checked, libc
from app.storage.beneath import RefusedFile, located

PLACES = Path("run/claims")  # below the data directory: seen by no job
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_BIND, _ALL_BELOW, _SLAVE = 0x1000, 0x4000, 0x80000
# bubblewrap may be allowed what other programs are not.
_WAY_OUT = (
    "mount the whole claim, or have the administrator run the worker as root, or allow its programs namespaces "
    "(kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)"
)


def main() -> None:
    _, place, *rest = sys.argv
    end = rest.index("--")
    command = rest[end + 1 :]
    try:
        _enter_namespaces()
    except OSError as error:
        sys.exit(f"no part of a volume claim can be mounted by this node's worker: {error}; {_WAY_OUT}")
    try:
        _mount("tmpfs", place, "tmpfs", 0)
        for number, (part, claim) in enumerate(_pairs(rest[:end])):
            with located(part, claim) as descriptor:
                _attach(descriptor, Path(place, str(number)))
    except (OSError, RefusedFile) as error:
        sys.exit(f"a part of a volume claim can't be mounted: {error}")
    os.execvp(command[0], command)  # noqa: S606 – the command is ours


def _enter_namespaces() -> None:
    """Of mounts; a user who is not root may have one in a namespace of users alone, where it is root."""
    uid, gid = os.geteuid(), os.getegid()
    checked(libc().unshare(_NEW_MOUNTS if uid == 0 else _NEW_MOUNTS | _NEW_USER), "unshare")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path("/proc/self", name).write_text(text)
    # What the machine unmounts is unmounted here, too; what is mounted here is not there.
    _mount("none", "/", None, _SLAVE | _ALL_BELOW)


def _pairs(words: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    return zip(map(Path, words[::2]), map(Path, words[1::2]), strict=True)


def _attach(descriptor: int, target: Path) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        target.mkdir()
    else:
        target.touch()
    _mount(f"/proc/self/fd/{descriptor}", str(target), None, _BIND | _ALL_BELOW)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    result = libc().mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None)
    checked(result, f"mount {target}")
