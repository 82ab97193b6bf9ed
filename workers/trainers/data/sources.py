"""The data sources of a job's document, with the local files of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.spec.data.filters import BadFilter, operator_of
from app.domain.spec.data.formats import format_of
from app.domain.spec.data.splits import TEST, TRAIN, VALIDATION, BadSplit, Split, parse_split
from app.domain.spec.defaults import SEED
from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig

__all__ = ["TEST", "TRAIN", "VALIDATION", "DataFile", "Filter", "Sampling", "Source", "seed_of", "sources_of"]


@dataclass(frozen=True)
class DataFile:
    """A local file and the name shown to users."""

    path: Path
    name: str


@dataclass(frozen=True)
class Filter:
    """`op` is one of == != < <= > >= in not_in contains not_contains is_null not_null."""

    column: str
    op: str
    value: Any = None


@dataclass(frozen=True)
class Sampling:
    """Exactly one of `fraction` and `count` is set."""

    seed: int
    fraction: float | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """One of data_config.sources; `index` is its position there, `split` one of train, validation, test.

    `rows_slice` is set only if not all rows are selected.
    """

    index: int
    location: str
    files: tuple[DataFile, ...]
    format: str
    split: str = TRAIN
    rows_slice: Split | None = None
    columns: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    sampling: Sampling | None = None
    weight: float | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.files[0].name if len(self.files) == 1 else self.location

    @property
    def field(self) -> str:
        """The field of the job document that describes it."""
        return f"data_config.sources.{self.index}"


def sources_of(spec: RunSpec) -> tuple[Source, ...]:
    """The job's sources in their order. Raises InvalidConfig."""
    documents = spec.data_config.get("sources") or [{} for _ in spec.sources]
    if len(documents) != len(spec.sources):
        raise InvalidConfig(f"data_config names {len(documents)} sources, but {len(spec.sources)} were found")
    seed = seed_of(spec.data_config)
    pairs = zip(documents, spec.sources, strict=True)
    return tuple(_source(index, document or {}, found, seed) for index, (document, found) in enumerate(pairs))


def seed_of(data_config: Mapping[str, Any]) -> int:
    """The seed of all random choices."""
    seed = data_config.get("seed")
    return SEED if seed is None else int(seed)


def _source(index: int, document: Mapping[str, Any], found: Mapping[str, Any], seed: int) -> Source:
    files = tuple(DataFile(Path(file["path"]), file.get("name") or Path(file["path"]).name) for file in found["files"])
    field = f"data_config.sources.{index}"
    try:
        split = parse_split(document.get("split"))
        filters = tuple(_filter(each) for each in document.get("filters") or ())
    except (BadSplit, BadFilter) as error:
        raise InvalidConfig(f"{field}: {error}") from error
    return Source(
        index=index,
        location=found.get("location") or document.get("path") or "",
        files=files,
        format=document.get("format") or (format_of(files[0].name) if files else None) or "jsonl",
        split=split.name,
        rows_slice=split if split.is_sliced else None,
        columns=tuple(document.get("columns") or ()),
        filters=filters,
        sampling=_sampling(document.get("sampling"), seed),
        weight=document.get("weight"),
    )


def _filter(document: Mapping[str, Any]) -> Filter:
    value = document.get("value")
    # A source is used as a dictionary key.
    value = tuple(value) if isinstance(value, list) else value
    return Filter(str(document["column"]), operator_of(str(document["op"])), value)


def _sampling(document: Mapping[str, Any] | None, seed: int) -> Sampling | None:
    if not document:
        return None
    own_seed = document.get("seed")
    return Sampling(seed if own_seed is None else own_seed, document.get("fraction"), document.get("count"))
