"""What jobs of one project may read on this machine, and the inputs resolved for one of them."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from io import BufferedReader
from pathlib import Path

from app.domain.spec.locations.paths import ReadingRules
from app.storage.beneath import file_located
from app.storage.storage import Storage
from config.fetching import CacheSettings, FetchSettings
from workers.fetching.cache import Cache
from workers.fetching.digests import Digests, joined
from workers.fetching.directory_locks import DirectoryLock
from workers.fetching.fetch import FetchOrder

FETCHED = "data"  # below a cache directory: the fetched files


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A model directory and the paths that must be mounted to read it (a hub cache links out of its directory).

    ``commit`` is that of a hub's repository that it was fetched from.
    """

    path: Path
    visible: Path
    commit: str = ""


@dataclass(frozen=True, kw_only=True)
class LocalDataFile:
    """``name`` is the name shown to users; ``sha256`` is empty where it is not compared."""

    path: Path
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class LocalData:
    """One source. ``path`` is its file, or a directory with its files (or links to them); ``commit`` as of a model."""

    location: str
    files: tuple[LocalDataFile, ...]
    path: Path
    visible: tuple[Path, ...]  # paths that must be mounted to read the files
    commit: str = ""

    @property
    def sha256(self) -> str:
        """Digest over the files' digests in order; empty when they are unknown."""
        return joined([file.sha256 for file in self.files])


@dataclass(frozen=True, kw_only=True)
class JobInputs:
    """The resolved inputs; ``data`` is aligned with data_config.sources."""

    model: LocalModel | None
    tokenizer: LocalModel | None
    data: tuple[LocalData, ...]
    script: Path | None
    code: Path | None = None  # the code directory for the ranks, or the working directory of a command
    reward: Path | None = None  # the file that scores completions
    reward_model: LocalModel | None = None  # the model that scores completions
    benchmark_files: Mapping[str, Path] = field(default_factory=dict)  # by location: code that benchmarks run

    @property
    def readable(self) -> tuple[Path, ...]:
        models = tuple(found.visible for found in (self.model, self.tokenizer, self.reward_model) if found is not None)
        judges = (*(() if self.reward is None else (self.reward,)), *self.benchmark_files.values())
        return tuple(dict.fromkeys((*models, *judges, *(path for data in self.data for path in data.visible))))


@dataclass(frozen=True, kw_only=True)
class UploadedFile:
    """A file that the project has uploaded, and where its content is."""

    id: str
    filename: str
    purpose: str
    size_bytes: int
    sha256: str
    storage: Storage
    key: str


def _no_uploads(_file_id: str) -> UploadedFile | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Library:
    """What jobs of one project may read here, and where fetched files are stored.

    ``secrets`` are the job's: ``output_config.hub_token``, credentials of places, and ``forwarded.…``. ``fetch_bytes``
    is a lower limit set by the caller; larger items raise TooLargeHere. ``without_weights`` is for callers that only
    inspect a model.
    ``claims`` are those in which inputs were found so far: other jobs may write to them at any time.
    ``may_make_claims`` asks whether the project's jobs make new ones.
    ``close`` deletes the links made for this library; the end of the process does so too.
    """

    rules: ReadingRules
    cache_dir: Path
    project: str
    project_of_job: Callable[[str], str | None]
    fetch: FetchSettings = field(default_factory=FetchSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    secrets: Mapping[str, str] = field(default_factory=dict)
    fetch_bytes: int | None = None
    uploads: Callable[[str], UploadedFile | None] = _no_uploads  # of the project, by id
    without_weights: bool = False
    claims: set[Path] = field(default_factory=set)  # resolved
    may_make_claims: Callable[[], bool] = bool

    @property
    def order(self) -> FetchOrder:
        """The order for the fetching child process."""
        return FetchOrder(fetch=self.fetch, cache=self.cache, root=self._data_cache, secrets=self.secrets)

    @property
    def file_cache(self) -> Cache:
        """The files that this node keeps."""
        return Cache(self._data_cache, self.cache.max_bytes)

    @cached_property
    def link_directory(self) -> DirectoryLock:
        """The directory with the links; linked files are not evicted from the cache while it exists."""
        return DirectoryLock(self._data_cache / "uses", "use")

    @cached_property
    def digests(self) -> Digests:
        return Digests(self._data_cache / "local", self.opened)

    @cached_property
    def numbers(self) -> Iterator[int]:
        """Numbers of the directories in ``link_directory``."""
        return itertools.count()

    @property
    def _data_cache(self) -> Path:
        return self.cache_dir / FETCHED

    def new_directory(self) -> Path:
        """A new, unique directory name in ``link_directory``."""
        return self.link_directory.path / str(next(self.numbers))

    def claim_around(self, path: Path) -> Path | None:
        """The claim that a resolved path lies in; None for others, and for a claim itself."""
        return next((claim for claim in self.claims if claim in path.parents), None)

    def opened(self, path: Path) -> AbstractContextManager[BufferedReader]:
        """A file of an input, open for reading; one in a claim only if it really lies there. Raises OSError, and
        RefusedFile.
        """
        claim = self.claim_around(path)
        return path.open("rb") if claim is None else file_located(path, claim)

    def close(self) -> None:
        """Idempotent."""
        if "link_directory" in self.__dict__:
            self.link_directory.close()
