"""Benchmark `preference`: whether the chosen answer is likelier than the rejected one, or has the larger reward."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.domain.evaluations.samples import Sample, digest
from app.domain.spec.hyperparameters.rlhf import ALGORITHM, REWARD_METHOD, REWARD_MODELLING
from workers.trainers.data.encoded import EncodedPair
from workers.trainers.data.records import LocatedRecord
from workers.trainers.data.shapes import Record
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid
from workers.trainers.inference.engine.interface import Continuation
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask, Measurement
from workers.trainers.inference.inputs import InputRow

_CLASSIFIER = "ForSequenceClassification"


def measure(task: BenchmarkTask) -> Measurement:
    """As `measure.Measure`."""
    dataset = Dataset(task.spec, task.benchmark)
    judges = is_reward_model(task)
    records = dataset.records(REWARD_METHOD if judges else "DPO")
    pairs = _pairs(task, dataset, records, judges=judges)
    values = _rewards(task, dataset, records, pairs) if judges else _logprobs(task, dataset, records, pairs)
    prompts = task.engine.tokenizer.batch_decode([each.prompt_ids for each in pairs])
    return Measurement(
        samples=[_sample(*each) for each in zip(records, values, prompts, strict=True)],
        prompt_tokens=sum(2 * len(pair.prompt_ids) + len(pair.chosen_ids) + len(pair.rejected_ids) for pair in pairs),
    )


def is_reward_model(task: BenchmarkTask) -> bool:
    """Whether the engine's model gives scores instead of tokens."""
    model: Any = getattr(task.engine, "model", None)
    return type(model).__name__.endswith(_CLASSIFIER)


def _pairs(
    task: BenchmarkTask, dataset: Dataset, records: Sequence[tuple[InputRow, Record]], *, judges: bool
) -> list[EncodedPair]:
    """Tokens as trainings on preferences have them, cut at data_config.max_seq_length."""
    values = {ALGORITHM: REWARD_MODELLING} if judges else {}
    spec = replace(task.spec, training_type="RLHF" if judges else "DPO", hyperparameters=values)
    tokenizing = RecordTokenizer(task.engine.tokenizer, spec)
    found = []
    for row, record in records:
        try:
            pair = tokenizing.encode(LocatedRecord(record, row.where))
        except DataInvalid as error:
            raise dataset.invalid(row, str(error)) from error
        if not isinstance(pair, EncodedPair) or not pair.learns:
            raise dataset.invalid(row, "data_config.max_seq_length cuts off an answer; raise it, or filter such rows")
        found.append(pair)
    return found


def _logprobs(
    task: BenchmarkTask, dataset: Dataset, records: Sequence[tuple[InputRow, Record]], pairs: Sequence[EncodedPair]
) -> list[tuple[float, float]]:
    requests = [
        Continuation(context=tuple(pair.prompt_ids), tokens=tuple(answer))
        for pair in pairs
        for answer in (pair.chosen_ids, pair.rejected_ids)
    ]
    answers = iter(task.engine.likelihoods(requests, task.interrupted))
    return [
        (dataset.accepted(row, next(answers)).logprob, dataset.accepted(row, next(answers)).logprob)
        for row, _ in records
    ]


def _rewards(
    task: BenchmarkTask, dataset: Dataset, records: Sequence[tuple[InputRow, Record]], pairs: Sequence[EncodedPair]
) -> list[tuple[float, float]]:
    texts = [(*pair.prompt_ids, *answer) for pair in pairs for answer in (pair.chosen_ids, pair.rejected_ids)]
    answers = iter(task.engine.scores(texts, task.interrupted))
    found = []
    for row, _ in records:
        chosen, rejected = (dataset.accepted(row, next(answers)).value for _ in range(2))
        if chosen is None or rejected is None:
            raise dataset.invalid(
                row, "the model is a classifier with labels; name a reward model, which has one score"
            )
        found.append((chosen, rejected))
    return found


def _sample(located: tuple[InputRow, Record], values: tuple[float, float], prompt: str) -> Sample:
    row, record = located
    chosen, rejected = values
    return Sample(
        index=row.index,
        document=record,
        doc_hash=digest(record),
        prompt_hash=digest(prompt),
        target_hash=digest(record["chosen"]),
        answer="chosen" if chosen > rejected else "rejected",
        scores={"accuracy": float(chosen > rejected), "margin": chosen - rejected},
        more={"chosen": chosen, "rejected": rejected},
    )
