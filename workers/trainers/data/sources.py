"""The data sources of a job's document, with the local files of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.spec import model
from app.domain.spec.data.filters import BadFilter, operator_of
from app.domain.spec.data.formats import format_of
from app.domain.spec.data.splits import TEST, TRAIN, VALIDATION, BadSplit, Split, parse_split
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.failures import InvalidConfig

__all__ = ["TEST", "TRAIN", "VALIDATION", "DataFile", "DataSource", "RowFilter", "RowSampling", "sources_of"]


@dataclass(frozen=True)
class DataFile:
    """A local file and the name shown to users."""

    path: Path
    name: str


@dataclass(frozen=True)
class RowFilter:
    """`op` is one of == != < <= > >= in not_in contains not_contains is_null not_null."""

    column: str
    op: str
    value: Any = None


@dataclass(frozen=True)
class RowSampling:
    """Exactly one of `fraction` and `count` is set."""

    seed: int
    fraction: float | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class DataSource:
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
    filters: tuple[RowFilter, ...] = ()
    sampling: RowSampling | None = None
    weight: float | None = None
    read_until: float = math.inf  # on the monotonic clock; `selected` raises TimeoutError after it

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.files[0].name if len(self.files) == 1 else self.location

    @property
    def field(self) -> str:
        """The field of the job document that describes it."""
        return f"data_config.sources.{self.index}"


def sources_of(spec: RunSpec) -> tuple[DataSource, ...]:
    """The job's sources in their order. Raises InvalidConfig."""
    data = data_config(spec)
    documents = data.sources or [model.Source()] * len(spec.sources)
    if len(documents) != len(spec.sources):
        raise InvalidConfig(f"data_config names {len(documents)} sources, but {len(spec.sources)} were found")
    pairs = zip(documents, spec.sources, strict=True)
    return tuple(_source(index, document, found, data.seed) for index, (document, found) in enumerate(pairs))


def _source(index: int, document: model.Source, found: Mapping[str, Any], seed: int) -> DataSource:
    files = tuple(DataFile(Path(file["path"]), file.get("name") or Path(file["path"]).name) for file in found["files"])
    field = f"data_config.sources.{index}"
    try:
        split = parse_split(document.split)
        filters = tuple(_filter(each) for each in document.filters)
    except (BadSplit, BadFilter) as error:
        raise InvalidConfig(f"{field}: {error}") from error
    return DataSource(
        index=index,
        location=found.get("location") or document.path,
        files=files,
        format=document.format or (format_of(files[0].name) if files else None) or "jsonl",
        split=split.name,
        rows_slice=split if split.is_sliced else None,
        columns=document.columns,
        filters=filters,
        sampling=_sampling(document.sampling, seed),
        weight=document.weight,
    )


def _filter(document: model.Filter) -> RowFilter:
    value = document.value
    # A source is used as a dictionary key.
    value = tuple(value) if isinstance(value, list) else value
    return RowFilter(document.column, operator_of(document.op), value)


def _sampling(document: model.Sampling | None, seed: int) -> RowSampling | None:
    if document is None:
        return None
    return RowSampling(seed if document.seed is None else document.seed, document.fraction, document.count)
