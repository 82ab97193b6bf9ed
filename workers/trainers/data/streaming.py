"""Reads, shuffles and tokenizes records during training, endlessly and deterministically."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from datasets import IterableDataset
from datasets.iterable_dataset import ExamplesIterable

from workers.trainers.data.encoded import Columns
from workers.trainers.data.packing import blocks
from workers.trainers.data.records import LocatedRecord, records
from workers.trainers.data.sources import DataSource
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid

Example = Columns


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The records of the sources, repeated in a new order per pass; each lane gets its own part.

    A lane is one reading process: a rank, or each of its data loader workers. Together the lanes cover every record
    once per pass. `block_length` 0: records as they are, otherwise packed into blocks.
    """

    sources: tuple[DataSource, ...]
    mapping: Mapping[str, str]
    method: str
    tokenizing: RecordTokenizer
    shuffle_buffer: int
    seed: int
    lanes: int
    block_length: int = 0

    def dataset(self) -> IterableDataset:
        """Sharded by lane: accelerate assigns shards to ranks, the data loader to its workers."""
        return IterableDataset(ExamplesIterable(_numbered, {"stream": self, "lanes": list(range(self.lanes))}))

    def examples(self, lane: int) -> Iterator[Example]:
        """The columns of records, endlessly. Raises DataNotFound, DataInvalid."""
        if self.block_length:
            for block in blocks(map(_ids, self._encoded(lane)), self.block_length):
                yield {"input_ids": block, "labels": list(block)}
        else:
            yield from self._encoded(lane)

    def _encoded(self, lane: int) -> Iterator[Example]:
        position = 0
        barren = 0
        for number in itertools.count():
            barren += 1
            for located in self._pass(number):
                if position % self.lanes == lane:
                    encoded = self.tokenizing.encode(located)
                    if encoded.learns:
                        barren = 0
                        yield encoded.columns
                position += 1
            # With very few records a lane may get nothing from one pass, but not from this many passes.
            if barren > self.lanes:
                raise DataInvalid("no record is left with anything to learn: raise data_config.max_seq_length")

    def _pass(self, number: int) -> Iterator[LocatedRecord]:
        found = itertools.chain.from_iterable(
            records(source, self.mapping, self.method, one_pass=True) for source in self.sources
        )
        draw = random.Random(f"{self.seed}/{number}")  # noqa: S311
        return shuffled(found, self.shuffle_buffer, draw)


def _ids(example: Example) -> list[int]:
    return cast("list[int]", example["input_ids"])


def shuffled(items: Iterable[LocatedRecord], buffer: int, draw: random.Random) -> Iterator[LocatedRecord]:
    """Each item is drawn from a buffer of this size; 0 preserves the order."""
    if buffer <= 1:
        yield from items
        return
    source = iter(items)
    held = list(itertools.islice(source, buffer))
    for item in source:
        index = draw.randrange(len(held))
        held[index], chosen = item, held[index]
        yield chosen
    draw.shuffle(held)
    yield from held


def _numbered(stream: Stream, lanes: list[int]) -> Iterator[tuple[int, Example]]:
    # Endless, so there is never a second lane here: datasets passes one at a time.
    yield from enumerate(stream.examples(lanes[0]))
