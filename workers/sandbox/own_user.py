"""The host user of an attempt: no other attempt on this machine has the same one at the same time.

A lock on a file reserves a user; the kernel releases it when the supervisor ends. Processes of the attempt may outlive
the supervisor, and other programs may use such IDs: so a user is free only when it has no process, either. Nor is it
free while rules of another part of its attempt let it in (app.host.guarded_ports): each such part has a shared lock.
"""

import fcntl
import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from app.host import idmapped_mounts
from app.host.own_users import LOCKS, private_directory
from app.host.processes import users_of_processes


class NoFreeUser(RuntimeError):
    """Other attempts have all users of the range."""


class OwnUser:
    """The user, as long as this object is not released; ``uid`` is that of its group, too."""

    def __init__(self, uid: int, lock: int, namespace: int) -> None:
        self.uid = uid
        self.namespace = namespace  # for mounts in which files of the worker are the user's
        self._held = [lock, namespace]
        self._peers: set[int] = set()
        self._endings: list[Callable[[], None]] = []
        self._close = weakref.finalize(self, _close_all, self._endings, self._held)

    def before_release(self, call: Callable[[], None]) -> None:
        """Have this done while the user is still no other attempt's. It may raise OSError, which changes nothing."""
        self._endings.append(call)

    def reserve_peers(self, uids: Iterable[int], *, locks: Path = LOCKS) -> None:
        """Have no other attempt take the users of parts on this machine before this one is released, too.

        These parts are running: theirs may end earlier. Idempotent. Raises OSError.
        """
        for uid in uids:
            if uid != self.uid and uid not in self._peers:
                self.keep(_lock(_peers_of(uid, locks), fcntl.LOCK_SH))  # others have it for a moment only
                self._peers.add(uid)

    def keep(self, descriptor: int) -> int:
        """Close it when the user is released."""
        self._held.append(descriptor)
        return descriptor

    def maps(self, path: Path) -> bool:
        """Whether the file system of this path can show files of the worker as the user's."""
        try:
            os.close(idmapped_mounts.tree(path, self.namespace))
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Idempotent."""
        self._close()


def take_user(uids: Iterable[int], *, locks: Path = LOCKS) -> OwnUser:
    """The first user that is free. Raises NoFreeUser, and OSError."""
    private_directory(locks)
    alive: set[int] = set()
    for uid in uids:
        if uid in alive or (lock := _try_lock(locks / str(uid))) is None:
            continue
        try:
            alive = set(users_of_processes())  # after the lock: who had it before may have left processes
            if uid not in alive and not _has_peers(uid, locks):
                return OwnUser(uid, lock, idmapped_mounts.user_namespace(uid))
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise NoFreeUser("other attempts have all users of TRAINYARD_NODE_UIDS; name a larger range there")


def _has_peers(uid: int, locks: Path) -> bool:
    lock = _try_lock(_peers_of(uid, locks))
    if lock is not None:
        os.close(lock)
    return lock is None


def _peers_of(uid: int, locks: Path) -> Path:
    return locks / f"{uid}.peers"


def _try_lock(path: Path) -> int | None:
    try:
        return _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _lock(path: Path, how: int) -> int:
    """Raises OSError."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, how)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _close_all(endings: Iterable[Callable[[], None]], descriptors: Iterable[int]) -> None:
    for ending in endings:
        with suppress(OSError):
            ending()
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
