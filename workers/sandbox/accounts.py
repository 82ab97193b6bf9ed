"""Files that name users and hosts in a sandbox: of the sandbox and of its image, never of the machine."""

import socket

from workers.sandbox.spec import ImageRoot

USER, USER_ID, GROUP_ID = "job", 1000, 1000  # of a job that has no image, or whose image names no user
PASSWD, GROUP, HOSTS = ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/hosts")
_MOST_BYTES = 1 << 20  # of a file of an image


def accounts(*, own_network: bool, image: ImageRoot | None = None) -> dict[str, str]:
    """Text by path."""
    if image is None:
        files = {
            PASSWD: (
                "root:x:0:0:root:/:/usr/sbin/nologin\n"
                f"{USER}:x:{USER_ID}:{GROUP_ID}:{USER}:/:/bin/sh\n"
                "unknown:x:65534:65534:unknown:/:/usr/sbin/nologin\n"
            ),
            GROUP: f"root:x:0:\n{USER}:x:{GROUP_ID}:\nnogroup:x:65534:\n",
        }
    else:
        user, uid, gid = (image.user, image.uid, image.gid) if image.user else (USER, USER_ID, GROUP_ID)
        files = {
            PASSWD: _with_entry(image, PASSWD, f"{user}:x:{uid}:{gid}:{user}:/:/bin/sh", uid),
            GROUP: _with_entry(image, GROUP, f"{user}:x:{gid}:", gid),
        }
    if own_network:  # the machine's name must lead to an address that exists
        files[HOSTS] = f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n"
    return files


def _with_entry(image: ImageRoot, path: str, entry: str, number: int) -> str:
    """The image's own file, with the entry where it names no such user or group."""
    lines = image_lines(image, path)
    return "\n".join([*lines, *([] if numbered(lines, number) else [entry])]) + "\n"


def image_lines(image: ImageRoot, path: str) -> list[str]:
    """Lines of a file of an image; none of one that is a link, or too large."""
    file = image.directory / path.lstrip("/")
    if file.is_symlink() or file.parent.is_symlink() or not file.is_file() or file.stat().st_size > _MOST_BYTES:
        return []
    return file.read_text(errors="replace").splitlines()


def numbered(lines: list[str], number: int) -> list[str]:
    """The fields of the first entry of this user or group; none if there is no such entry."""
    entries = (line.split(":") for line in lines)
    return next((entry for entry in entries if len(entry) > 2 and entry[2] == str(number)), [])
