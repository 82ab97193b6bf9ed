"""The unpacked images of this node, by registry and digest of their manifests; least recently used ones go first."""

import hashlib
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from app.domain.spec.image import RegistryLogin
from app.domain.spec.locations.images import ALWAYS, NEVER, ImageReference
from config.images import ImageSettings
from workers.attempt_failed import AttemptFailed
from workers.fetching.described_directories import DescribedDirectories
from workers.fetching.directory_locks import DirectoryLock, locked, sweep
from workers.images.image_config import ImageConfig, copied_digest, read_config
from workers.images.image_tools import ROOT, ImageTools
from workers.run_dir.sizes import allocated_bytes
from workers.sandbox.sandbox import Sandbox

_DESCRIPTION = "image.json"


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """``root`` stays as long as this process lives. ``seconds`` is how long it took to fetch; 0 if it was here."""

    root: Path
    config: ImageConfig
    digest: str
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ImageStore:
    """``directory`` belongs to the store."""

    directory: Path
    data_dir: Path
    settings: ImageSettings
    sandbox: Sandbox
    project: str
    login: RegistryLogin | None = None  # of the job, for the registry of the image

    def provide(self, reference: ImageReference, pull_policy: str) -> StoredImage:
        """The image, fetched and unpacked where it must be. Raises AttemptFailed."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = "" if pull_policy == ALWAYS else self._known(reference)
        if known and (here := self._opened(reference, known)) is not None:
            return here
        if pull_policy == NEVER:
            raise AttemptFailed(
                "INVALID_CONFIG",
                f"resource_config.image: this node has not used {reference} for the project {self.project}, and "
                "pull_policy is never; say if_missing",
            )
        return self._fetched(reference)

    def _fetched(self, reference: ImageReference) -> StoredImage:
        began = time.monotonic()
        sweep(self.directory / "new")
        with DirectoryLock(self.directory / "new", "image") as work:
            tools = ImageTools.of(
                self.settings,
                self.project,
                self.sandbox,
                directory=work.path,
                data_dir=self.data_dir,
                seconds=self.settings.fetch_seconds,
                login=self.login,
            )
            # By asking, also for an image that is here, it is known that the project may read it. What lies at a path
            # may be another image at any time: only the copy says which one it is.
            digest = copied_digest(tools.copy(reference)) if reference.is_local else tools.digest(reference)
            name = self._name(reference, digest)
            with locked(self.directory / f"{name}.lock"):
                found, seconds = self._opened(reference, digest), 0.0
                if found is None:
                    if not reference.is_local:
                        # By its digest, which skopeo compares: a registry may answer a tag with another one now.
                        tools.copy(replace(reference, digest=f"sha256:{digest}"))
                    self._unpack(tools, reference, name)
                    found, seconds = self._opened(reference, digest), round(time.monotonic() - began, 3)
        if found is None:
            raise AttemptFailed("STORAGE_ERROR", f"the image {reference} vanished from this node's cache")
        self._remember(reference, digest)
        self._kept.make_room(self.settings.cache_bytes)
        return replace(found, seconds=seconds)

    def _unpack(self, tools: ImageTools, reference: ImageReference, name: str) -> None:
        """What was copied."""
        config = read_config(tools.layout)
        root = tools.unpack()
        described = {"config": config.to_document(), "bytes": allocated_bytes(root), "reference": str(reference)}
        (tools.directory / _DESCRIPTION).write_text(json.dumps(described))
        done = tools.directory / name
        done.mkdir()
        root.rename(done / ROOT)
        (tools.directory / _DESCRIPTION).rename(done / _DESCRIPTION)
        done.rename(self.directory / name)

    def _opened(self, reference: ImageReference, digest: str) -> StoredImage | None:
        """An image that is here, kept from now on; None if it is not."""
        name = self._name(reference, digest)
        described = self._kept.opened(name, ROOT)
        if described is None:
            return None
        config = ImageConfig.from_document(described["config"])
        return StoredImage(root=self.directory / name / ROOT, config=config, digest=digest)

    def _name(self, reference: ImageReference, digest: str) -> str:
        """The directory of an image. Who knows a manifest may push it elsewhere, or write it to a path of their own:
        that opens no image of another registry, or of another project's paths.
        """
        place = ("local", self.project) if reference.is_local else (reference.transport, reference.host)
        return hashlib.sha256("\n".join((*place, digest)).encode()).hexdigest()

    @property
    def _kept(self) -> DescribedDirectories:
        return DescribedDirectories(self.directory, _DESCRIPTION)

    def _known(self, reference: ImageReference) -> str:
        """The digest under which the project used the reference before; empty if it did not."""
        try:
            return self._index(reference).read_text()
        except FileNotFoundError:
            return ""

    def _remember(self, reference: ImageReference, digest: str) -> None:
        index = self._index(reference)
        index.parent.mkdir(parents=True, exist_ok=True)
        new = index.with_name(f"{index.name}.{os.getpid()}")
        new.write_text(digest)
        new.replace(index)

    def _index(self, reference: ImageReference) -> Path:
        """What a login has opened is known to jobs with the same one alone: others may not be let in."""
        parts = [self.project, str(reference)]
        if self.login is not None:
            parts += [self.login.username, self.login.password]
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return self.directory / "references" / name
