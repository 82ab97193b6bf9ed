"""Moves a directory that a rank offers out of the rank's reach; the rank may hold it open and keep changing it.

Its files are moved one by one into directories that no rank has ever opened. A rank can still change the bytes of a
file that it has open, and those are hashed; it can't replace a file.
"""

import os
import shutil
import stat
from dataclasses import dataclass

from app.storage.beneath import DIRECTORY

MAX_FILES = 250_000
MAX_DEPTH = 64


class CheckpointRefused(Exception):
    """A checkpoint that does not match its rank's description."""


@dataclass
class _Count:
    files: int = 0


def take_over(name: str, offers: int, taken: int, target: str) -> None:
    """Move ``name`` in directory ``offers`` to the new ``target`` in ``taken``. Raises CheckpointRefused.

    Both are descriptors, opened before any rank ran: their paths may have been replaced. What can't be moved is
    deleted.
    """
    offered = f"{target}.offered"
    try:
        os.rename(name, offered, src_dir_fd=offers, dst_dir_fd=taken)
    except FileNotFoundError:
        raise CheckpointRefused(f"{name} is not in the directory that this attempt was given") from None
    try:
        source = os.open(offered, DIRECTORY, dir_fd=taken)
    except NotADirectoryError:  # also for a link
        os.unlink(offered, dir_fd=taken)
        raise CheckpointRefused(f"{name} is not a directory") from None
    try:
        _move_into(source, taken, target, count=_Count(), depth=0)
    finally:
        os.close(source)
        shutil.rmtree(offered, dir_fd=taken, ignore_errors=True)


def _move_into(source: int, parent: int, name: str, *, count: _Count, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CheckpointRefused(f"its directories are nested more than {MAX_DEPTH} deep")
    os.mkdir(name, dir_fd=parent)
    target = os.open(name, DIRECTORY, dir_fd=parent)
    try:
        with os.scandir(source) as entries:
            for entry in entries:
                count.files += 1
                if count.files > MAX_FILES:
                    raise CheckpointRefused(f"it holds more than {MAX_FILES} files; write fewer and larger ones")
                _move(entry, source, target, count=count, depth=depth)
    finally:
        os.close(target)


def _move(entry: "os.DirEntry[str]", source: int, target: int, *, count: _Count, depth: int) -> None:
    try:
        if entry.is_dir(follow_symlinks=False):
            folder = os.open(entry.name, DIRECTORY, dir_fd=source)
            try:
                _move_into(folder, target, entry.name, count=count, depth=depth + 1)
            finally:
                os.close(folder)
            return
        os.rename(entry.name, entry.name, src_dir_fd=source, dst_dir_fd=target)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointRefused(f"{entry.name} was changed while the checkpoint was taken over") from error
    # Checked only after the move, where it can't be replaced: a directory in a file's place may still be open.
    if stat.S_ISDIR(os.stat(entry.name, dir_fd=target, follow_symlinks=False).st_mode):
        raise CheckpointRefused(f"{entry.name} was changed while the checkpoint was taken over")
