"""Files that name users and hosts in a sandbox: of the sandbox and of its image, never of the machine."""

import socket
from pathlib import Path

from workers.sandbox.spec import Account, ImageRoot

PASSWD, GROUP, HOSTS = ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/hosts")
MOST_ID = 2**31 - 1  # of a user or group
_MOST_BYTES = 1 << 20  # of a file of an image
_OF_ALL = {
    PASSWD: ("root:x:0:0:root:/:/usr/sbin/nologin", "unknown:x:65534:65534:unknown:/:/usr/sbin/nologin"),
    GROUP: ("root:x:0:", "nogroup:x:65534:"),
}


def account_files(account: Account, *, own_network: bool, image: ImageRoot | None = None) -> dict[str, str]:
    """Text by path."""
    name, uid, gid = account.name, account.uid, account.gid
    entries = {PASSWD: (f"{name}:x:{uid}:{gid}:{name}:/:/bin/sh", uid), GROUP: (f"{name}:x:{gid}:", gid)}
    files = {}
    for path, (entry, number) in entries.items():
        lines = list(_OF_ALL[path]) if image is None else image_lines(image.directory, path)
        files[path] = "\n".join([*lines, *([] if numbered(lines, number) else [entry])]) + "\n"
    if own_network:  # the machine's name must lead to an address that exists
        files[HOSTS] = f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n"
    return files


def image_lines(root: Path, path: str) -> list[str]:
    """Lines of a file of an image; none of one that is a link, or too large."""
    file = root / path.lstrip("/")
    if file.is_symlink() or file.parent.is_symlink() or not file.is_file() or file.stat().st_size > _MOST_BYTES:
        return []
    return file.read_text(errors="replace").splitlines()


def numbered(lines: list[str], number: int) -> list[str]:
    """The fields of the first entry of this user or group; none if there is no such entry."""
    entries = (line.split(":") for line in lines)
    return next((entry for entry in entries if len(entry) > 2 and entry[2] == str(number)), [])
