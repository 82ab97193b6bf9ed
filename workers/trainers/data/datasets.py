"""The tokenized splits of a job: memory-mapped from files in a cache directory, or streamed."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset, concatenate_datasets
from transformers import PreTrainedTokenizerBase

from app.domain.spec.data.preprocessing import PROMPTS, records_of
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config
from workers.trainers.data import mixing, templates
from workers.trainers.data.encoded import AnyEncoded, columns_of
from workers.trainers.data.packing import packed
from workers.trainers.data.records import records
from workers.trainers.data.sources import TEST, TRAIN, VALIDATION, DataFile, DataSource, sources_of
from workers.trainers.data.statistics import merged
from workers.trainers.data.stored import StoredRecords, stored
from workers.trainers.data.streaming import Stream
from workers.trainers.data.tokenizer_threads import all_threads
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid, DataNotFound, InvalidConfig

# Increment when the stored format changes, so that files of older versions are not reused.
_VERSION = 2
_REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Splits:
    """Columns input_ids and labels (of preferences: prompt_ids, chosen_ids, rejected_ids), truncated, ready to collate.

    Of prompts: prompt_ids, and the whole record as JSON.

    With packing nothing is truncated here: trl's own packing cuts. `train` is an endless IterableDataset when
    streaming: it repeats by itself, so that transformers' skipping of seen batches is exact.
    """

    train: Dataset | IterableDataset
    validation: Dataset | None
    test: Dataset | None
    statistics: dict[str, Any]
    conversational: bool


def load(spec: RunSpec, tokenizer: PreTrainedTokenizerBase, cache_dir: Path) -> Splits:
    """The first caller builds what `cache_dir` lacks, the others find it there (see `first_rank_first`), unless the
    node has kept the tokens of an earlier job.

    Sets the tokenizer's chat template when the job provides one, or when conversational records need one and the
    tokenizer has none. Raises DataNotFound, DataInvalid, InvalidConfig.
    """
    return _Loading(spec, tokenizer, cache_dir).splits()


class _Loading:
    """The state of one load."""

    def __init__(self, spec: RunSpec, tokenizer: PreTrainedTokenizerBase, cache_dir: Path) -> None:
        self._spec = spec
        self._data = data_config(spec)
        self._tokenizer = tokenizer
        self._sources = sources_of(spec)
        self._tokenizing = RecordTokenizer(tokenizer, spec)
        kept = Path(spec.tokens_path) if spec.tokens_path else None
        self._directory = kept or cache_dir / _key(spec, self._sources, tokenizer)
        self._mapping = self._data.preprocess.field_mapping
        self._block_length = 0
        if spec.training_type == "CONTINUED_PRETRAIN":
            self._block_length = self._data.max_seq_length
        if not self._of(TRAIN):
            raise InvalidConfig("data_config.sources has no source to train on: give at least one the split train")

    def splits(self) -> Splits:
        streams = self._data.streaming
        found = {source: self._stored(source) for source in self._sources if not streams or source.split != TRAIN}
        train, held_out = (self._stream(), None) if streams else self._train(found)
        validation = self._whole(VALIDATION, found)
        splits = {"train": train, "validation": held_out if validation is None else validation}
        splits["test"] = self._whole(TEST, found)
        conversational = any(each.conversational for each in found.values()) or (streams and self._streams_messages())
        if conversational:
            templates.ensure(self._tokenizer)
        return Splits(**splits, statistics=self._statistics(found, splits), conversational=conversational)

    def _of(self, split: str) -> list[DataSource]:
        return [source for source in self._sources if source.split == split]

    def _stored(self, source: DataSource) -> StoredRecords:
        found = stored(
            self._directory / f"source-{source.index}.arrow", columns_of(method_of(self._spec)), self._encoded(source)
        )
        if not len(found.dataset):
            lengths = found.lengths
            what = f"{lengths.truncated} of {lengths.records} are cut"
            if records_of(method_of(self._spec)) == PROMPTS:
                what = f"all {lengths.records} prompts are too long, see max_prompt_length"
            raise DataInvalid(
                f"{source.name}: no record is left with anything to learn; raise data_config.max_seq_length ({what})"
            )
        return found

    def _encoded(self, source: DataSource) -> Iterator[tuple[AnyEncoded, bool]]:
        found = records(source, self._mapping, method_of(self._spec))
        reported_at = time.monotonic()
        with all_threads(self._spec):
            for number, (located, encoded) in enumerate(self._tokenizing.encode_all(found), start=1):
                yield encoded, located.conversational
                if time.monotonic() - reported_at >= _REPORT_SECONDS:
                    reported_at = time.monotonic()
                    print(f"tokenized {number} records of {source.name}", flush=True)  # noqa: T201  (the job's log)

    def _train(self, found: dict[DataSource, StoredRecords]) -> tuple[Dataset, Dataset | None]:
        """The training data, and the part held out for validation."""
        sources = self._of(TRAIN)
        parts = [found[source].dataset for source in sources]
        counts = [len(part) for part in parts]
        seed = self._data.seed
        share = 0.0 if self._of(VALIDATION) else self._data.validation_split
        kept, held_out = mixing.held_out(counts, share, seed)
        weights = [source.weight for source in sources]
        if any(weights):
            kept = mixing.mixed(kept, [weight or 1.0 for weight in weights], seed)
        whole = concatenate_datasets(parts) if len(parts) > 1 else parts[0]
        train = self._chosen(whole, kept, counts, "train")
        return train, self._chosen(whole, held_out, counts, "held-out") if any(map(len, held_out)) else None

    def _chosen(self, whole: Dataset, parts: Sequence[mixing.Indices], counts: list[int], name: str) -> Dataset:
        indices = mixing.joined(parts, counts)
        if len(indices) == len(whole) and [len(part) for part in parts] == counts:
            return self._packed(whole, name)
        if self._block_length and name == "train":
            # Blocks are cut from records in this order; a later shuffle would not mix their contents.
            indices = mixing.permuted(indices, self._data.seed)
        return self._packed(whole.select(indices), name)

    def _whole(self, split: str, found: dict[DataSource, StoredRecords]) -> Dataset | None:
        parts = [found[source].dataset for source in self._of(split)]
        if not parts:
            return None
        return self._packed(concatenate_datasets(parts) if len(parts) > 1 else parts[0], split)

    def _packed(self, dataset: Dataset, name: str) -> Dataset:
        if not self._block_length:
            return dataset
        return packed(dataset, self._directory / f"{name}-blocks.arrow", self._block_length)

    def _stream(self) -> IterableDataset:
        return Stream(
            sources=tuple(self._of(TRAIN)),
            mapping=self._mapping,
            method=method_of(self._spec),
            tokenizing=self._tokenizing,
            shuffle_buffer=self._data.shuffle_buffer,
            seed=self._data.seed,
            lanes=self._spec.world_size * max(1, self._data.num_workers),
            block_length=self._block_length,
        ).dataset()

    def _streams_messages(self) -> bool:
        method = method_of(self._spec)
        firsts = (next(records(source, self._mapping, method, one_pass=True)) for source in self._of(TRAIN))
        return any(first.conversational for first in firsts)

    def _statistics(self, found: dict[DataSource, StoredRecords], splits: dict[str, Any]) -> dict[str, Any]:
        """Statistics of each of the `sources`, of all together, and of the `splits` (blocks, when packed)."""
        sources = [
            {"location": source.location, "split": source.split, **each.lengths.to_document()}
            for source, each in found.items()
        ]
        sizes = {name: len(split) for name, split in splits.items() if isinstance(split, Dataset)}
        return {"sources": sources, "splits": sizes, **merged(each.lengths for each in found.values()).to_document()}


def _key(spec: RunSpec, sources: Sequence[DataSource], tokenizer: PreTrainedTokenizerBase) -> str:
    """A cache key of everything that the stored data depends on. Raises DataNotFound."""
    # An earlier load may have set our default template.
    template = None if tokenizer.chat_template == templates.DEFAULT else tokenizer.chat_template
    known = {
        "version": _VERSION,
        "data_config": spec.data_config,
        "training_type": spec.training_type,
        "hyperparameters": spec.hyperparameters,
        "files": [_status(file) for source in sources for file in source.files],
        "tokenizer": [tokenizer.name_or_path, len(tokenizer), str(tokenizer.special_tokens_map), str(template)],
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _status(file: DataFile) -> tuple[str, int, int]:
    try:
        status = file.path.stat()
    except FileNotFoundError as error:
        raise DataNotFound(f"{file.name} does not exist ({file.path})") from error
    return str(file.path), status.st_size, status.st_mtime_ns
