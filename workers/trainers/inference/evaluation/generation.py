"""Benchmarks of completions: the model answers prompts, and a scorer judges the answers."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from app.domain.evaluations.samples import Sample, digest
from app.domain.spec.inference import GENERATE
from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Completion, Prompt, SamplingParams, TokenIds
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask, Measurement
from workers.trainers.inference.evaluation.scorers import scorer_of
from workers.trainers.inference.evaluation.scoring import AnsweredRecord, Scored
from workers.trainers.inference.inputs import InputRow
from workers.trainers.inference.seeds import sample_seed
from workers.trainers.inference.tokens import TaskTokens, Unanswerable

# Records of one call of the engine: bounds its memory, and is the same in every attempt.
_RECORDS_AT_ONCE = 512
Item = TypeVar("Item")


def measure(task: BenchmarkTask) -> Measurement:
    """As `measure.Measure`."""
    dataset = Dataset(task.spec, task.benchmark)
    records = dataset.records(GENERATE)
    scorer = scorer_of(task, dataset)
    scorer.check(records)
    tokens = TaskTokens(task.engine.tokenizer, task.spec, task.engine.context_length)
    prompts = [_prompt(dataset, tokens, *each) for each in records]
    completions = _completions(task, dataset, records, prompts)
    answered = [AnsweredRecord(row, record, found) for (row, record), found in zip(records, completions, strict=True)]
    scored = scorer(answered)
    texts = task.engine.tokenizer.batch_decode([list(each) for each in prompts])
    return Measurement(
        samples=[_sample(*each) for each in zip(answered, scored, texts, strict=True)],
        prompt_tokens=sum(map(len, prompts)),
        completion_tokens=sum(len(each.tokens) for each in completions),
    )


def _prompt(dataset: Dataset, tokens: TaskTokens, row: InputRow, record: Record) -> TokenIds:
    try:
        return tokens.prompt(record)
    except Unanswerable as error:
        raise dataset.invalid(row, error.message) from error


def _completions(
    task: BenchmarkTask, dataset: Dataset, records: Sequence[tuple[InputRow, Record]], prompts: Sequence[TokenIds]
) -> list[Completion]:
    sampling, found = sampling_of(task), []
    for chunk in _chunks(list(zip((row for row, _ in records), prompts, strict=True))):
        requests = [Prompt(tokens=ids, seed=sample_seed(task.seed, row.index, 0)) for row, ids in chunk]
        answers = task.engine.generate(requests, sampling, task.interrupted)
        found += [dataset.accepted(row, answer) for (row, _), answer in zip(chunk, answers, strict=True)]
    return found


def sampling_of(task: BenchmarkTask) -> SamplingParams:
    """By the parameters of the benchmark."""
    values = task.parameters
    return SamplingParams(
        max_new_tokens=values["max_new_tokens"],
        temperature=float(values["temperature"]),
        top_p=float(values["top_p"]),
        top_k=values["top_k"],
        min_p=float(values["min_p"]),
        repetition_penalty=float(values["repetition_penalty"]),
        stop=tuple(values["stop"]),
    )


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), _RECORDS_AT_ONCE):
        yield items[first : first + _RECORDS_AT_ONCE]


def _sample(answered: AnsweredRecord, scored: Scored, prompt: str) -> Sample:
    record, completion = answered.record, answered.completion
    return Sample(
        index=answered.row.index,
        document=record,
        doc_hash=digest(record),
        prompt_hash=digest(prompt),
        target_hash=digest(scored.target),
        answer=completion.text,
        scores=scored.scores,
        more={"finish_reason": completion.finish_reason, "target": scored.target, **scored.more},
    )
