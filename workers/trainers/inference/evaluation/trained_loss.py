"""Benchmarks `loss` and `perplexity`: the loss of records exactly as trainings measure their validation data.

The same tokens, labels, batches and arithmetic as transformers' evaluation loop with trl's SFTTrainer, whose mean
weighs each batch's loss by its records: on a CPU `loss` equals the `eval_loss` of a training to the last bit.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from trl.trainer.utils import add_fused_lm_head

from app.domain.evaluations.catalog import LOSS, PERPLEXITY
from app.domain.evaluations.samples import Sample, digest
from app.domain.spec.metrics import perplexity
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.data.encoded import Encoded
from workers.trainers.data.packing import blocks
from workers.trainers.data.records import LocatedRecord
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.hf_trainer.loop.collator import collator
from workers.trainers.inference.engine.interface import Interrupted
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask, Measurement

_PRETRAINING = "CONTINUED_PRETRAIN"
_IN_A_BATCH = ("input_ids", "labels")


@dataclass(frozen=True)
class _Sequence:
    """What the model reads at once: a record, or a block of several."""

    index: int
    document: dict[str, Any]
    input_ids: list[int]
    labels: list[int]


@dataclass(frozen=True)
class _Batch:
    """``loss`` is the mean over tokens; ``sums`` and ``tokens`` are those of each sequence."""

    loss: np.float32
    sums: Sequence[float]
    tokens: Sequence[int]


def measure(task: BenchmarkTask) -> Measurement:
    """As `measure.Measure`."""
    model: PreTrainedModel | None = getattr(task.engine, "model", None)
    if model is None:
        raise InvalidConfig(f"benchmark {task.benchmark.name}: this engine can't measure it; use engine transformers")
    spec = _as_training(task)
    sequences = _sequences(task, spec)
    size = task.parameters["batch_size"]
    with _fused_head(model):
        batches = list(
            _batches(task, spec, model, [sequences[at : at + size] for at in range(0, len(sequences), size)])
        )
    losses = np.concatenate([np.full(len(batch.sums), batch.loss) for batch in batches])
    loss = float(losses.mean().item())
    return Measurement(
        samples=list(_samples(task, sequences, batches)),
        prompt_tokens=sum(len(each.input_ids) for each in sequences),
        values={LOSS: loss, PERPLEXITY: perplexity(loss)},
    )


def _as_training(task: BenchmarkTask) -> RunSpec:
    """The specification of the training whose data would be this dataset."""
    names = ("completion_only_loss", "assistant_only_loss")
    values = {name: task.parameters[name] for name in names}
    return replace(task.spec, training_type=task.parameters["records_as"], hyperparameters=values)


def _sequences(task: BenchmarkTask, spec: RunSpec) -> list[_Sequence]:
    dataset = Dataset(spec, task.benchmark)
    located = [LocatedRecord(record, row.where) for row, record in dataset.records(spec.training_type)]
    tokenizing = RecordTokenizer(task.engine.tokenizer, spec)
    try:
        encoded = [each for _, each in tokenizing.encode_all(located) if isinstance(each, Encoded)]
    except DataInvalid as error:
        raise DataInvalid(f"benchmark {task.benchmark.name}: {error}") from error
    if spec.training_type == _PRETRAINING:
        found = blocks((each.input_ids for each in encoded), data_config(spec).max_seq_length)
        return [_Sequence(index, {"block": index}, ids, ids) for index, ids in enumerate(found)]
    # Trainings skip records of which truncation has left only the prompt.
    kept = [
        _Sequence(index, each.record, tokens.input_ids, tokens.labels)
        for index, (each, tokens) in enumerate(zip(located, encoded, strict=True))
        if tokens.learns
    ]
    if not kept:
        raise DataInvalid(
            f"benchmark {task.benchmark.name}: {dataset.source.name}: no record is left with anything to measure; "
            "raise data_config.max_seq_length"
        )
    return kept


def _batches(
    task: BenchmarkTask, spec: RunSpec, model: PreTrainedModel, groups: Sequence[Sequence[_Sequence]]
) -> Iterator[_Batch]:
    collate = collator(spec, task.engine.tokenizer)
    for group in groups:
        if task.interrupted():
            raise Interrupted
        batch = collate([{name: getattr(each, name) for name in _IN_A_BATCH} for each in group])
        with torch.no_grad():
            found = model(**{name: each.to(model.device) for name, each in batch.items()}, fused_lm_head=True)
        # As trl's SFTTrainer.compute_loss without num_items_in_batch, which its evaluation does not pass.
        losses = -found.log_probs
        loss = losses.sum() / found.label_mask.sum().clamp(min=1)
        yield _Batch(
            np.float32(loss.float().cpu().numpy()), losses.double().sum(1).tolist(), found.label_mask.sum(1).tolist()
        )


@contextmanager
def _fused_head(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model has trl's fused head, which computes log-probabilities in the order that trainings do."""
    had_own = "forward" in vars(model)
    before = model.forward
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    try:
        yield
    finally:
        if had_own:
            model.forward = before
        else:
            del model.forward


def _samples(task: BenchmarkTask, sequences: Sequence[_Sequence], batches: Sequence[_Batch]) -> Iterator[Sample]:
    """A sample's score are its loss added over tokens, and their number."""
    sums = itertools.chain.from_iterable(batch.sums for batch in batches)
    tokens = itertools.chain.from_iterable(batch.tokens for batch in batches)
    for each, total, count in zip(sequences, sums, tokens, strict=True):
        learned = [token for token in each.labels if token >= 0]
        yield Sample(
            index=each.index,
            document=each.document,
            doc_hash=digest(each.document if task.parameters["records_as"] != _PRETRAINING else each.input_ids),
            prompt_hash=digest(each.input_ids),
            target_hash=digest(learned),
            scores={task.benchmark.name: (total, float(count))},
        )
