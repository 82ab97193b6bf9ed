"""Distributes the records of each step to the model replicas, in a deterministic order."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase

from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.data.datasets import Splits
from workers.trainers.data.encoded import NOT_LEARNED
from workers.trainers.hf_trainer.loop.batch_order import LengthGrouped, Shuffled
from workers.trainers.hf_trainer.loop.batch_plan import BatchPlan
from workers.trainers.hf_trainer.loop.collator import max_seq_length

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class StepBatches:
    """One replica's forward passes of a step (all of one length), and the number of records of all replicas."""

    batches: list[Batch]
    records: int

    @property
    def length(self) -> int:
        return int(self.batches[0]["input_ids"].shape[1])

    @property
    def tokens(self) -> int:
        """Tokens without padding."""
        return sum(int(batch["attention_mask"].sum()) for batch in self.batches)


@dataclass(frozen=True)
class Padding:
    """Padding token and minimum length."""

    token: int
    least: int = 1

    @classmethod
    def of(cls, spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> "Padding":
        preprocess = data_config(spec).preprocess
        least = max_seq_length(spec) if preprocess.padding == "max_length" else 1
        return cls(int(tokenizer.pad_token_id), least)


class RecordDistributor:
    """Distributes records to `devices` replicas in turn, one batch at a time; `group` is this replica's number.

    When an epoch's last records do not suffice for all, empty records without labels fill the gap: no record counts
    twice, whatever the number of replicas.
    """

    def __init__(self, plan: BatchPlan, group: int, padding: Padding) -> None:
        self._plan = plan
        self._group = group
        self._padding = padding

    def steps_of_an_epoch(self, dataset: Dataset) -> int:
        return math.ceil(len(dataset) / self._plan.records_per_step)

    def shares(self, dataset: Dataset, order: Sampler[int] | None = None, *, after: int = 0) -> Iterator[StepBatches]:
        """The batches of one epoch, in the given order if any, after skipping its first steps."""
        indices = list(range(len(dataset)) if order is None else order)
        size = self._plan.records_per_step
        for start in range(after * size, len(indices), size):
            yield self._share(dataset, indices[start : start + size])

    def _share(self, dataset: Dataset, indices: Sequence[int]) -> StepBatches:
        size, groups = self._plan.batch_size, self._plan.devices
        passes = math.ceil(len(indices) / (size * groups))
        starts = [(number * groups + self._group) * size for number in range(passes)]
        own = [[dataset[index] for index in indices[start : start + size]] for start in starts]
        longest = max((len(record["input_ids"]) for records in own for record in records), default=1)
        length = max(longest, self._padding.least)
        return StepBatches([self._batch(records, length) for records in own], len(indices))

    def _batch(self, records: list[dict[str, Any]], length: int) -> Batch:
        """input_ids, labels and attention_mask of shape (batch_size, length), padded on the right."""
        fillings = {"input_ids": self._padding.token, "labels": NOT_LEARNED, "attention_mask": 0}
        batch = {name: torch.full((self._plan.batch_size, length), value) for name, value in fillings.items()}
        for row, record in enumerate(records):
            size = len(record["input_ids"])
            batch["input_ids"][row, :size] = torch.tensor(record["input_ids"])
            batch["labels"][row, :size] = torch.tensor(record["labels"])
            batch["attention_mask"][row, :size] = 1
        return batch


class GroupData:
    """The training and evaluation data of one replica."""

    def __init__(
        self, spec: RunSpec, plan: BatchPlan, splits: Splits, tokenizer: PreTrainedTokenizerBase, *, group: int
    ) -> None:
        self.validation = splits.validation
        self._train = splits.train
        self._values = spec.hyperparameters
        self._seed = data_config(spec).seed
        self._plan = plan
        padding = Padding.of(spec, tokenizer)
        measured = self._values["eval_batch_size"] or plan.batch_size
        if plan.is_halved:
            # A batch that did not fit in memory for training does not fit for evaluation.
            measured = min(measured, plan.batch_size)
        self._learned = RecordDistributor(plan, group, padding)
        self._measured = RecordDistributor(replace(plan, batch_size=measured, accumulation=1), group, padding)

    @property
    def steps_of_an_epoch(self) -> int:
        return self._learned.steps_of_an_epoch(self._train)

    def training(self, step: int) -> Iterator[StepBatches]:
        """The rest of the epoch after this many steps."""
        epoch, done = divmod(step, self.steps_of_an_epoch)
        order: Sampler[int] = Shuffled(self._train, self._seed, lambda: epoch)
        if self._values.get("group_by_length"):
            order = LengthGrouped(self._train, self._plan.records_per_step, self._seed, lambda: epoch)
        return self._learned.shares(self._train, order, after=done)

    def measuring(self, dataset: Dataset) -> Iterator[StepBatches]:
        return self._measured.shares(dataset)
