"""The records of an inference job: numbered over all sources in order, and cut into shards by their numbers."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.spec.inference import REQUESTS
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.data.reading import count_rows, where
from workers.trainers.data.records import nothing_in
from workers.trainers.data.selection import FIXED_COLUMNS, selected
from workers.trainers.data.shapes import Record, RecordMapper
from workers.trainers.data.sources import DataSource, sources_of
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.section import inference_of


@dataclass(frozen=True, slots=True)
class InputRow:
    """A selected row: its number among all of the job, its position in a file, and its columns."""

    index: int
    where: str  # "tickets.jsonl line 7", for errors
    values: Mapping[str, Any]
    line: int = 0  # in its file, from 1; of formats without lines the record


@dataclass(frozen=True)
class Shard:
    """The records from ``first_record`` on that make one part of the output."""

    number: int
    first_record: int
    records: int


class Inputs:
    """Rows after slices, filters, sampling and columns, whatever the split of their source.

    Raises DataNotFound and DataInvalid where files can't be read.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.sources = sources_of(spec)
        if not self.sources:
            raise InvalidConfig("data_config.sources is empty: name the records to read")
        inference = inference_of(spec)
        self._mapping = RecordMapper(data_config(spec).preprocess.field_mapping, inference.task.type)
        self._reads_whole = inference.task.type == REQUESTS
        self._only_model = inference.task.only_model

    def record(self, row: InputRow) -> Record:
        """The row in one of the shapes of the task. Raises DataInvalid naming row and field."""
        if self._reads_whole:
            return dict(row.values)
        return self._mapping.record(row.values, row.where)[1]

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise InvalidConfig or DataInvalid for a column that a source can't have. A JSON object may omit it."""
        for source in self.sources:
            left_out = [name for name in names if source.columns and name not in source.columns]
            if left_out:
                raise InvalidConfig(
                    f"output.keep_columns names {left_out[0]}, which {source.field}.columns leaves out: add it there"
                )
            first = next(selected(source, one_pass=True), None) if source.format in FIXED_COLUMNS else None
            missing = [name for name in names if first is not None and name not in first[1].values]
            if missing:
                raise DataInvalid(f"{source.name} has no column {missing[0]}, which output.keep_columns names")

    def count(self) -> int:
        """The number of rows; their content is only read where filters or sampling need it."""
        if self._only_model:
            return self._count_of_model()
        counts = [_count(source) for source in self.sources]
        for source, count in zip(self.sources, counts, strict=True):
            if not count:
                raise nothing_in(source)
        return sum(counts)

    def rows(self) -> Iterator[InputRow]:
        """All rows, in order."""
        numbers = itertools.count()
        for source in self.sources:
            for file, row in selected(source):
                if not self._only_model or model_of(row.values) == self._only_model:
                    place = where(file, source.format, row.number)
                    yield InputRow(next(numbers), place, row.values, row.number)

    def shards(self, plan: list[Shard], chosen: Callable[[int], bool]) -> Iterator[tuple[Shard, list[InputRow]]]:
        """The shards whose number is ``chosen``, which is asked when their first row is reached, with their rows."""
        rows = self.rows()
        for shard in plan:
            if chosen(shard.number):
                found = list(itertools.islice(rows, shard.records))
                _check_complete(shard, len(found))
                yield shard, found
            else:
                _skip(rows, shard.records)

    def _count_of_model(self) -> int:
        count = sum(1 for _ in self.rows())
        if not count:
            raise DataInvalid(f"no request is for the model {self._only_model}, which task.only_model names")
        return count


def model_of(request: Mapping[str, Any]) -> object:
    """The model that a request names."""
    body = request.get("body")
    return body.get("model") if isinstance(body, Mapping) else None


def planned(total: int, shard_records: int) -> list[Shard]:
    """The shards of ``total`` records; the last may be shorter."""
    firsts = range(0, total, shard_records)
    return [Shard(number, first, min(shard_records, total - first)) for number, first in enumerate(firsts)]


def _count(source: DataSource) -> int:
    if source.filters or source.sampling is not None:
        return sum(1 for _ in selected(source))
    whole = sum(count_rows(file, source.format) for file in source.files)
    return len(source.rows_slice.rows(whole)) if source.rows_slice is not None else whole


def _skip(rows: Iterator[InputRow], count: int) -> None:
    for _ in itertools.islice(rows, count):
        pass


def _check_complete(shard: Shard, found: int) -> None:
    if found != shard.records:
        raise DataInvalid(
            f"data_config.sources: only {found} of the {shard.records} records from number {shard.first_record} on "
            "were found: the files changed while they were read; submit the job again"
        )
