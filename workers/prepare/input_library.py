"""What jobs of one project may read on this machine, and what was found there for one of them."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from app.domain.spec.locations.paths import ReadingRules
from config.fetching import CacheSettings, FetchSettings
from workers.fetching.digests import Digests, joined
from workers.fetching.directory_locks import Held
from workers.fetching.fetch import Order

FETCHED = "data"  # below a cache directory: the files that were fetched


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model directory, and what must be visible for it to be readable (a hub cache links out of it)."""

    path: Path
    visible: Path


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """``name`` is what people know it by; ``sha256`` is empty where nothing compares it."""

    path: Path
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Data:
    """One source. ``path`` stands for the whole: its file, or a directory with its files (or links to them)."""

    location: str
    files: tuple[DataFile, ...]
    path: Path
    visible: tuple[Path, ...]  # what must be visible for the files to be readable

    @property
    def sha256(self) -> str:
        """Over the files' digests, in their order; empty when they are not known."""
        return joined([file.sha256 for file in self.files])


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What was found on this machine; ``data`` is aligned with data_config.sources."""

    model: Model | None
    tokenizer: Model | None
    data: tuple[Data, ...]
    script: Path | None
    code: Path | None = None  # the directory that the ranks find with the script in it, or where a command starts
    reward: Path | None = None  # the file that judges completions
    reward_model: Model | None = None  # the same of a model

    @property
    def readable(self) -> tuple[Path, ...]:
        models = tuple(found.visible for found in (self.model, self.tokenizer, self.reward_model) if found is not None)
        judges = () if self.reward is None else (self.reward,)
        return tuple(dict.fromkeys((*models, *judges, *(path for data in self.data for path in data.visible))))


@dataclass(frozen=True, kw_only=True)
class Library:
    """What jobs of one project may read here, and where fetched things are kept.

    ``secrets`` are the job's: ``output_config.hub_token``, credentials of places, and ``forwarded.…``. ``fetch_bytes``
    is a smaller limit of whoever asks: what is larger raises TooLargeHere. ``without_weights`` is for those who only
    look at a model.
    ``close`` takes away what was fetched for this library's user; the end of the process does so, too.
    """

    rules: ReadingRules
    cache_dir: Path
    project: str
    project_of_job: Callable[[str], str | None]
    fetch: FetchSettings = field(default_factory=FetchSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    secrets: Mapping[str, str] = field(default_factory=dict)
    fetch_bytes: int | None = None
    without_weights: bool = False

    @property
    def order(self) -> Order:
        """What a fetching child must know."""
        return Order(fetch=self.fetch, cache=self.cache, root=self._data_cache, secrets=self.secrets)

    @cached_property
    def holding(self) -> Held:
        """The directory with the links; nothing in it is evicted while it is there."""
        return Held(self._data_cache / "uses", "use")

    @cached_property
    def digests(self) -> Digests:
        return Digests(self._data_cache / "local")

    @cached_property
    def numbers(self) -> Iterator[int]:
        """Of the directories in ``holding``."""
        return itertools.count()

    @property
    def _data_cache(self) -> Path:
        return self.cache_dir / FETCHED

    def new_directory(self) -> Path:
        """A name in ``holding`` that nobody else has."""
        return self.holding.path / str(next(self.numbers))

    def close(self) -> None:
        """Safe to call twice."""
        if "holding" in self.__dict__:
            self.holding.close()
