"""The host user of an attempt: one of its own where the node can give it one, else the worker's."""

import logging
import os
import stat
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.domain.spec.frameworks.requirements import OWN_USER
from app.host.gpu_devices import closed_files
from app.host.own_users import OwnedPath, as_user, lack_by, recorded_lack, stage, staged, uid_range
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.sandbox.own_user import NoFreeUser, OwnUser, take_user
from workers.sandbox.sandbox import BUBBLEWRAP, Sandbox
from workers.sandbox.spec import FilesystemView

log = logging.getLogger(__name__)

MOST_ENTRIES = 10_000  # of an input, looked at to find out whether all users may read it
_READ_SECONDS = 20.0


@dataclass(frozen=True)
class _Lack:
    """Why an attempt has the worker's user."""

    why: str
    is_of_inputs: bool = False  # so the job's document is to be changed, rather than the node
    is_usual: bool = False  # on this node, as its operator wants it

    def error(self) -> AttemptFailed:
        return AttemptFailed(
            "INVALID_CONFIG" if self.is_of_inputs else "INTERNAL",
            f"this node can't give the job a user of its own ({OWN_USER}): {self.why}",
        )


def own_user_of(
    settings: Settings, view: FilesystemView, sandbox: Sandbox, required: Collection[str]
) -> OwnUser | None:
    """None: the worker's. ``required``: capabilities that the job or its project requires.

    Raises AttemptFailed where they contain OWN_USER and there is none, or others have all.
    """
    found = _taken(settings, view, sandbox)
    if isinstance(found, OwnUser):
        return found
    if OWN_USER in required:
        raise found.error()
    return None


@contextmanager
def borrowed_user(settings: Settings, view: FilesystemView, sandbox: Sandbox) -> Iterator[OwnUser | None]:
    """For a preflight, which comes before any attempt and demands nothing of the machine; None: the worker's."""
    try:
        found = _taken(settings, view, sandbox)
    except AttemptFailed as error:  # attempts come first
        log.warning("a preflight has the worker's user: %s", error.message)
        found = _Lack(error.message)
    user = found if isinstance(found, OwnUser) else None
    try:
        yield user
    finally:
        if user is not None:
            user.release()


def _taken(settings: Settings, view: FilesystemView, sandbox: Sandbox) -> OwnUser | _Lack:
    """Raises AttemptFailed where others have all users."""
    found = _user_or_lack(settings, view, sandbox)
    if isinstance(found, _Lack) and not found.is_usual:
        log.warning("processes of a job have the worker's user: %s", found.why)
    return found


def _user_or_lack(settings: Settings, view: FilesystemView, sandbox: Sandbox) -> OwnUser | _Lack:
    if sandbox.kind != BUBBLEWRAP:
        return _Lack("it runs jobs without a sandbox of namespaces", is_usual=True)
    if not settings.node.uids or os.geteuid() != 0:
        return _Lack("its worker is not root, or TRAINYARD_NODE_UIDS is empty there", is_usual=True)
    if why := recorded_lack(view.data_dir):
        return _Lack(why)
    if why := lack_by(closed_files(view.devices)):
        return _Lack(why)
    try:
        user = take_user(uid_range(settings.node.uids))
    except NoFreeUser as error:
        raise AttemptFailed("INTERNAL", f"this node has no user for the job: {error}") from error
    except OSError as error:
        return _Lack(str(error))
    try:
        lack = _unreachable(view, user)
    except BaseException:
        user.release()
        raise
    if lack is None:
        return user
    user.release()
    return lack


def _unreachable(view: FilesystemView, user: OwnUser) -> _Lack | None:
    """Something that the job needs and the user could not use; None where there is nothing of the kind."""
    written = [view.run_dir, *([view.image.directory] if view.image is not None else [])]
    if fixed := next((path for path in written if not user.maps(path)), None):
        return _Lack(f"the file system of {fixed} can't be mapped to another user")
    if fixed := next((path for path in view.written_claims if not user.maps(path)), None):
        return _Lack(f"the file system of {fixed}, a claim to write to, can't be mapped", is_of_inputs=True)
    for path in _inputs(view):
        if not user.maps(path) and not _may_read(user, path):
            why = f"the file system of {path} can't be mapped to another user, and not all may read it"
            return _Lack(why, is_of_inputs=True)
    return None


def _inputs(view: FilesystemView) -> Iterator[Path]:
    yield from view.readable
    yield from (placement.source for placement in view.placements if placement.source is not None)
    if view.code_source is not None:
        yield view.code_source


def _may_read(user: OwnUser, path: Path) -> bool:
    """Whether every user may read the file, or all files of the directory, which are not too many to be looked at.

    Some file systems (FUSE, NFS with Kerberos) refuse what the modes of their files allow: so the user reads one.
    """
    top, one = path.resolve(), None
    waiting, seen = [top], 0
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
        one = current if stat.S_ISREG(mode) else one
        seen += 1
        if seen + len(waiting) > MOST_ENTRIES:
            return False
    return _reads(user, top, one or top)


def _reads(user: OwnUser, top: Path, path: Path) -> bool:
    """Whether the user reads this file, or lists this directory, which is or lies below ``top``."""
    try:
        namespace = stage(user.namespace, [OwnedPath(top, is_mapped=False)])
    except OSError:
        return False
    at = staged(0) / path.relative_to(top)
    command = ["ls", "-A", str(at)] if path.is_dir() else ["head", "-c", "1", str(at)]
    try:
        done = subprocess.run(
            [*as_user(user.uid, namespace), *command], capture_output=True, timeout=_READ_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        os.close(namespace)
    return done.returncode == 0
