"""The user of the machine of an attempt: one of its own where the node can give it one, else the worker's."""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.domain.spec.frameworks.requirements import OWN_USER
from app.domain.spec.model import JobDocument
from app.host.own_users import recorded_lack, uid_range
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.sandbox.gpu_devices import gpu_files
from workers.sandbox.own_user import NoFreeUser, OwnUser, take_user
from workers.sandbox.sandbox import BUBBLEWRAP, Sandbox
from workers.sandbox.spec import FilesystemView

log = logging.getLogger(__name__)

_FOR_ALL = stat.S_IROTH | stat.S_IWOTH
MOST_ENTRIES = 10_000  # of an input, looked at to find out whether all users may read it


def own_user_of(settings: Settings, document: JobDocument, view: FilesystemView, sandbox: Sandbox) -> OwnUser | None:
    """None: the worker's. Raises AttemptFailed where the job requires its own, or others have all."""
    user, why = _taken(settings, view, sandbox)
    if user is None and why and OWN_USER in document.scheduling_config.required_capabilities:
        raise AttemptFailed("INTERNAL", f"this node can't give the job a user of its own ({OWN_USER}): {why}")
    return user


@contextmanager
def borrowed_user(settings: Settings, view: FilesystemView, sandbox: Sandbox) -> Iterator[OwnUser | None]:
    """For a preflight, which comes before any attempt; None: the worker's."""
    try:
        user, _ = _taken(settings, view, sandbox)
    except AttemptFailed:  # attempts come first
        user = None
    try:
        yield user
    finally:
        if user is not None:
            user.release(ended=False)  # it was killed a moment ago


def _taken(settings: Settings, view: FilesystemView, sandbox: Sandbox) -> tuple[OwnUser | None, str]:
    """The user, or why it is the worker's."""
    if sandbox.kind != BUBBLEWRAP or not settings.node.uids or os.geteuid() != 0:
        return None, "its worker is not root, or TRAINYARD_NODE_UIDS is empty there"
    if why := recorded_lack(view.data_dir):
        return None, why
    if shut := [str(path) for path in gpu_files(view.gpus) if not _is_open_device(path)]:
        return None, f"not all users may use {shut[0]}"
    try:
        user = take_user(uid_range(settings.node.uids))
    except NoFreeUser as error:
        raise AttemptFailed("INTERNAL", f"this node has no user for the job: {error}") from error
    except OSError as error:
        return None, error.strerror or str(error)
    if (why := _unreachable(view, user)) == "":
        return user, ""
    user.release(ended=True)
    log.warning("the attempt has the worker's user: %s", why)
    return None, why


def _unreachable(view: FilesystemView, user: OwnUser) -> str:
    """Why the user could not use something that the job needs; empty where there is nothing of the kind."""
    written = [view.run_dir, *([view.image.directory] if view.image is not None else [])]
    if fixed := next((path for path in written if not user.maps(path)), None):
        return f"the file system of {fixed} can't be mapped to another user"
    closed = next((path for path in _inputs(view) if not user.maps(path) and not _all_may_read(path)), None)
    return f"the file system of {closed} can't be mapped to another user, and not all may read it" if closed else ""


def _inputs(view: FilesystemView) -> Iterator[Path]:
    yield from view.readable
    yield from (placement.source for placement in view.placements if placement.source is not None)
    if view.code is not None:
        yield view.code


def _is_open_device(path: Path) -> bool:
    mode = path.stat().st_mode
    return not stat.S_ISCHR(mode) or mode & _FOR_ALL == _FOR_ALL


def _all_may_read(path: Path) -> bool:
    """Whether every user may read the file, or all files of the directory, which are not too many to be looked at."""
    waiting, seen = [path.resolve()], 0
    while waiting:
        current = waiting.pop()
        try:
            mode = current.stat().st_mode
            needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
            if mode & needed != needed:
                return False
            waiting += [each for each in current.iterdir() if not each.is_symlink()] if stat.S_ISDIR(mode) else []
        except OSError:
            return False
        seen += 1
        if seen + len(waiting) > MOST_ENTRIES:
            return False
    return True
