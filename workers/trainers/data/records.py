"""Training records: the selected rows of a source, mapped to our field names and validated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workers.trainers.data.reading import where
from workers.trainers.data.selection import selected
from workers.trainers.data.shapes import Record, RecordMapper
from workers.trainers.data.sources import DataSource
from workers.trainers.failures import DataInvalid


@dataclass(frozen=True, slots=True)
class LocatedRecord:
    """A record of one of the shapes in `shapes`, and its position."""

    record: Record
    where: str  # "train.jsonl line 7", for errors

    @property
    def conversational(self) -> bool:
        """Whether it consists of messages, which need a chat template."""
        return "messages" in self.record or isinstance(self.record.get("prompt"), list)


def records(
    source: DataSource, mapping: Mapping[str, str], method: str, *, one_pass: bool = False
) -> Iterator[LocatedRecord]:
    """Slice, filters, sampling, columns, field mapping, validation; in this order. All records have one shape.

    With `one_pass` the files are read only once, see `selection.selected`. Raises DataNotFound, and DataInvalid also
    when there is no record.
    """
    shaping = RecordMapper(mapping, method)
    shape = ""
    for file, row in selected(source, one_pass=one_pass):
        place = where(file, source.format, row.number)
        found, record = shaping.record(row.values, place)
        if found != (shape or found):
            raise DataInvalid(f"{place} has {found}, earlier records of this source have {shape}: use one of them")
        shape = found
        yield LocatedRecord(record, place)
    if not shape:
        raise nothing_in(source)


def nothing_in(source: DataSource) -> DataInvalid:
    """The error that no row of the source is selected."""
    parts = {"split": source.rows_slice, "filters": source.filters, "sampling": source.sampling}
    causes = " and ".join(f"{source.field}.{name}" for name, value in parts.items() if value)
    return DataInvalid(f"no records in {source.name}" + (f" that {causes} leave over" if causes else ""))
