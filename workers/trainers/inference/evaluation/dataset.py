"""The records of a benchmark: the first ones of its dataset, in its order."""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

from app.domain.spec.inference import Benchmark
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.data.reading import where
from workers.trainers.data.records import nothing_in
from workers.trainers.data.selection import selected
from workers.trainers.data.shapes import Record, RecordMapper
from workers.trainers.data.sources import DataSource, sources_of
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.engine.interface import RequestRefused
from workers.trainers.inference.inputs import InputRow

Answer = TypeVar("Answer")


class Dataset:
    """Of one benchmark. Raises InvalidConfig where the document has no such source."""

    def __init__(self, spec: RunSpec, benchmark: Benchmark) -> None:
        sources = sources_of(spec)
        if benchmark.dataset is None or not 0 <= benchmark.dataset < len(sources):
            raise InvalidConfig(f"benchmark {benchmark.name}: it has no dataset; name one in benchmarks.dataset")
        self.benchmark = benchmark
        self.mapping = data_config(spec).preprocess.field_mapping
        self.source: DataSource = sources[benchmark.dataset]

    def records(self, method: str) -> list[tuple[InputRow, Record]]:
        """The selected rows and their records, shaped as those of the method. Raises DataNotFound and DataInvalid."""
        mapper = RecordMapper(self.mapping, method)
        found = []
        for row in itertools.islice(self._rows(), self.benchmark.num_samples):
            try:
                found.append((row, mapper.record(row.values, row.where)[1]))
            except DataInvalid as error:
                raise self.invalid(row, str(error)) from error
        if not found:
            raise nothing_in(self.source)
        return found

    def column(self, row: InputRow, record: Record, name: str) -> object:
        """The value of a column beside the prompt. Raises DataInvalid for a row without it."""
        value = record["columns"].get(name)
        if value is None:
            known = ", ".join(record["columns"]) or "none beside the prompt"
            raise self.invalid(row, f"it has no column {name}; it has {known}. Name another in parameters")
        return value

    def invalid(self, row: InputRow, rule: str) -> DataInvalid:
        """The error that names benchmark, record and rule."""
        return DataInvalid(f"benchmark {self.benchmark.name}: record {row.index} ({row.where}): {rule}")

    def accepted(self, row: InputRow, answer: Answer | RequestRefused) -> Answer:
        """The engine's answer. Raises DataInvalid for one it refused: figures of fewer records would be others."""
        if isinstance(answer, RequestRefused):
            raise self.invalid(row, f"{answer.message} ({answer.code}); or leave it out with the dataset's filters")
        return answer

    def _rows(self) -> Iterator[InputRow]:
        numbers: Callable[[], int] = itertools.count().__next__
        for file, row in selected(self.source):
            yield InputRow(numbers(), where(file, self.source.format, row.number), row.values)
