"""A writable view of an image's root file system, for one attempt: an overlay in a mount namespace of its own.

Linux' overlayfs (https://docs.kernel.org/filesystems/overlayfs.html); bubblewrap itself makes overlays from 0.11 on.
"""

import os
import subprocess
import tempfile
from pathlib import Path

UPPER, WORK, MERGED = "upper", "work", "root"
# It mounts, and becomes the program that follows.
_MOUNT = 'mount -t overlay overlay -o "$1" "$2" && shift 2 && exec "$@"'
_PROBE_SECONDS = 10.0
_SEPARATORS = frozenset(':,"\\')


def overlay_command(lower: Path, directory: Path) -> list[str]:
    """A command to which another is added, which sees ``lower`` at MERGED below ``directory`` and may write there.

    The mount ends with its processes; what they wrote is in UPPER. Makes the directories; raises OSError.
    """
    upper, work, merged = (directory / name for name in (UPPER, WORK, MERGED))
    for path in (upper, work, merged):
        path.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    if os.geteuid() == 0:
        namespaces = ["unshare", "--mount"]
    else:
        namespaces = ["unshare", "--user", "--map-root-user", "--mount"]
        options += ",userxattr"
    return [*namespaces, "sh", "-c", _MOUNT, "sh", options, str(merged)]


def lack_of_overlays(directory: Path) -> str:
    """Why this process cannot mount an overlay whose files lie in the directory; empty where it can."""
    if not _SEPARATORS.isdisjoint(str(directory)):
        return (
            f"{directory} has a colon, a comma, a quote or a backslash in its path, which separate an overlay's options"
        )
    with tempfile.TemporaryDirectory(dir=directory) as name:
        place = Path(name)
        (place / "lower").mkdir()
        command = [*overlay_command(place / "lower", place / "overlay"), "true"]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if tried.returncode != 0:
            return tried.stderr.strip() or f"exit code {tried.returncode}"
        (place / "overlay" / WORK / "work").chmod(0o700)  # the kernel's own, which TemporaryDirectory removes
        return ""
