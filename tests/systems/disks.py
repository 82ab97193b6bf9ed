"""Small file systems, which only root may mount, that tests fill up."""

import os
import subprocess
from pathlib import Path


class Disk:
    """A file system of one MiB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def mount(self, options: str = "size=1m") -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "trainyard-test", str(self.path)], check=True)

    def fill(self, *, leaving: int = 0) -> None:
        """Take all room but so many bytes."""
        with self._ballast.open("wb") as file:
            status = os.statvfs(self.path)
            file.write(bytes(max(0, status.f_bavail * status.f_frsize - leaving)))

    def clear(self) -> None:
        self._ballast.unlink()

    def unmount(self) -> None:
        if self.path.is_mount():
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
