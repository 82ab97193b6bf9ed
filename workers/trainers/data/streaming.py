"""Records that are read, shuffled and tokenized while a training runs, without end, the same in every run."""

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
from workers.trainers.data.sources import Source
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid

Example = Columns


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The records of the sources, over and over, each time in another order; every lane gets its own part of them.

    A lane is what one process reads: a rank, or each of its loading processes. Together the lanes
    see every record once a pass. `block_length` 0: records as they are, else packed into blocks.
    """

    sources: tuple[Source, ...]
    mapping: Mapping[str, str]
    method: str
    tokenizing: RecordTokenizer
    shuffle_buffer: int
    seed: int
    lanes: int
    block_length: int = 0

    def dataset(self) -> IterableDataset:
        """Sharded into the lanes: accelerate gives each rank its own, the data loader each of its processes."""
        return IterableDataset(ExamplesIterable(_numbered, {"stream": self, "lanes": list(range(self.lanes))}))

    def examples(self, lane: int) -> Iterator[Example]:
        """The columns of records without end. Raises DataNotFound, DataInvalid."""
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
            # A lane may get nothing from a pass over very few records, but not from so many of them.
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
    """Each item is drawn among `buffer` ones that are held; 0 keeps the order."""
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
    # Without end, so there is never a second one: datasets hands over one lane at a time.
    yield from enumerate(stream.examples(lanes[0]))
