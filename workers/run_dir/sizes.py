"""How much disk space the files of a directory take."""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

RESUME = "resume"  # a checkpoint that the platform has put there
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's are
_LEAST_BYTES = 4096  # of an entry: a file without content takes space for its name and its inode


def allocated_bytes(directory: Path) -> int:
    """Disk space of all entries below the directory, at least 4 KiB for each, but for RESUME in it.

    Files that vanish meanwhile count nothing.
    """
    total = 0
    waiting = [directory]
    while waiting:
        current = waiting.pop()
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    total += max(_LEAST_BYTES, entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES)
                    if entry.is_dir(follow_symlinks=False) and not (current == directory and entry.name == RESUME):
                        waiting.append(Path(entry.path))
        except OSError as error:
            log.debug("not all of %s is counted: %s", directory, error)
    return total
