"""The package environments that a node keeps: each built once, kept while a process uses it, oldest deleted first.

``DIRECTORY/<key>/`` has ``env`` and ``packages.json``, which describes it; ``<key>.lock`` is locked by the one who
builds it.
"""

import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from workers.attempt_failed import AttemptFailed
from workers.fetching.cache import FREE_BYTES
from workers.fetching.described_directories import DescribedDirectories
from workers.fetching.directory_locks import DirectoryLock, locked, sweep
from workers.prepare.packages.build import ENVIRONMENT, Builder
from workers.prepare.packages.failures import FIELD
from workers.prepare.packages.request import EnvironmentRequest
from workers.prepare.packages.verified import installed
from workers.run_dir.sizes import allocated_bytes

_DESCRIPTION = "packages.json"
_NEW = "new"  # environments that are being built


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
            self._kept.make_room(self.cache_bytes, least_free=FREE_BYTES)
            self._build(request, builder, key)
            found = self._opened(key)
        if found is None:
            raise AttemptFailed("STORAGE_ERROR", f"{FIELD}: the environment vanished from this node's cache")
        self._kept.make_room(self.cache_bytes)
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
        described = self._kept.opened(key, ENVIRONMENT)
        if described is None:
            return None
        path = self.directory / key / ENVIRONMENT
        return StoredEnvironment(path=path, key=key, packages=tuple(described["packages"]))

    @property
    def _kept(self) -> DescribedDirectories:
        return DescribedDirectories(self.directory, _DESCRIPTION)
