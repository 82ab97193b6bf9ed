"""The package environments that a node keeps: each built once, kept while a process uses it, oldest deleted first.

``DIRECTORY/<key>/`` has ``env`` and ``packages.json``, which is there when all of it is; ``<key>.use`` is locked by
those who use it, and ``<key>.lock`` by the one who builds it.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from app.storage.beneath import DIRECTORY
from workers.attempt_failed import AttemptFailed
from workers.fetching.cache import FREE_BYTES
from workers.fetching.directory_locks import DirectoryLock, locked, sweep
from workers.prepare.packages.build import ENVIRONMENT, Builder
from workers.prepare.packages.failures import FIELD
from workers.prepare.packages.request import EnvironmentRequest
from workers.prepare.packages.verified import installed
from workers.run_dir.sizes import allocated_bytes

_DESCRIPTION, _USE = "packages.json", ".use"
_NEW = "new"  # environments that are being built
_held: list[int] = []  # descriptors of the environments that this process uses, until it ends


@dataclass(frozen=True, kw_only=True)
class StoredEnvironment:
    """``path`` stays as long as this process lives. ``seconds`` is how long it took to build; 0 if it was here."""

    path: Path
    key: str
    packages: tuple[str, ...]  # NAME==VERSION
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EnvironmentStore:
    """``directory`` belongs to the store."""

    directory: Path
    cache_bytes: int

    def provide(self, request: EnvironmentRequest, builder: Builder) -> StoredEnvironment:
        """The environment, built where it must be. Raises AttemptFailed."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = request.key
        if (here := self._opened(key)) is not None:
            return here
        with locked(self.directory / f"{key}.lock"):
            if (here := self._opened(key)) is not None:  # another job has built it meanwhile
                return here
            began = time.monotonic()
            self._make_room(at_least_free=FREE_BYTES)
            self._build(request, builder, key)
            found = self._opened(key)
        if found is None:
            raise AttemptFailed("STORAGE_ERROR", f"{FIELD}: the environment vanished from this node's cache")
        self._make_room()
        return replace(found, seconds=round(time.monotonic() - began, 3))

    def _build(self, request: EnvironmentRequest, builder: Builder, key: str) -> None:
        sweep(self.directory / _NEW)
        with DirectoryLock(self.directory / _NEW, "packages") as work:
            # Code of a build may write anything into the one, and sees nothing of the other.
            built, done = work.path / "build", work.path / key
            built.mkdir()
            done.mkdir()
            builder.build(request, built).rename(done / ENVIRONMENT)
            builder.compile_modules(request, done)
            packages = installed(done / ENVIRONMENT, request.interpreter.minor)
            described = {"bytes": allocated_bytes(done), "packages": packages}
            (done / _DESCRIPTION).write_text(json.dumps(described))
            shutil.rmtree(self.directory / key, ignore_errors=True)  # what is left of one that was being deleted
            done.rename(self.directory / key)

    def _opened(self, key: str) -> StoredEnvironment | None:
        """An environment that is here, kept from now on; None if it is not."""
        place = self.directory / key
        descriptor = os.open(self.directory / f"{key}{_USE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits while it is being deleted
            described = json.loads((place / _DESCRIPTION).read_text())
            os.close(os.open(place / ENVIRONMENT, DIRECTORY))  # not a link
            os.utime(place / _DESCRIPTION)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        _held.append(descriptor)
        return StoredEnvironment(path=place / ENVIRONMENT, key=key, packages=tuple(described["packages"]))

    def _make_room(self, at_least_free: int = 0) -> None:
        """Delete environments that no process uses until the others are small enough, and so much disk is free."""
        found = []
        for description in self.directory.glob(f"*/{_DESCRIPTION}"):
            with contextlib.suppress(OSError, ValueError):
                size = json.loads(description.read_text())["bytes"]
                found.append((description.stat().st_mtime, description.parent, size))
        total = sum(size for _, _, size in found)
        for _, place, size in sorted(found):
            if total <= self.cache_bytes and shutil.disk_usage(self.directory).free >= at_least_free:
                return
            if self._deleted(place):
                total -= size

    def _deleted(self, place: Path) -> bool:
        descriptor = os.open(place.with_name(place.name + _USE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (place / _DESCRIPTION).unlink(missing_ok=True)  # first: without it there is no environment
            shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True
