"""Task generate: completions of prompts, or the assistant's answers to messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.spec.inference import InferenceTask
from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Completion, Engine, Prompt, RequestRefused, SamplingParams
from workers.trainers.inference.rows import Answer
from workers.trainers.inference.seeds import sample_seed
from workers.trainers.inference.tasks.task import Interrupted
from workers.trainers.inference.tokens import TaskTokens


@dataclass(frozen=True)
class RecordPrompts:
    """The prompts of a record: one for each of its answers, which differ in their seeds."""

    prompts: tuple[Prompt, ...]


class Generating:
    """One answer is in column ``output``, several are a list of objects in ``outputs``."""

    def __init__(self, engine: Engine, tokens: TaskTokens, task: InferenceTask) -> None:
        self._engine = engine
        self._tokens = tokens
        self._task = task
        self._sampling = sampling_of(task)

    def request(self, index: int, record: Record) -> RecordPrompts:
        ids = tuple(self._tokens.prompt(record))
        seeds = (sample_seed(self._task.seed, index, sample) for sample in range(self._task.n))
        return RecordPrompts(tuple(Prompt(tokens=ids, seed=seed) for seed in seeds))

    def answers(self, requests: Sequence[RecordPrompts], interrupted: Interrupted) -> list[Answer | RequestRefused]:
        prompts = [prompt for request in requests for prompt in request.prompts]
        found = iter(self._engine.generate(prompts, self._sampling, interrupted))
        return [self._answer(request, [next(found) for _ in request.prompts]) for request in requests]

    def _answer(self, request: RecordPrompts, found: list[Completion | RequestRefused]) -> Answer | RequestRefused:
        completions: list[Completion] = []
        for each in found:
            if isinstance(each, RequestRefused):
                return each
            completions.append(each)
        outputs = [self._values(each) for each in completions]
        return Answer(
            values=outputs[0] if self._task.n == 1 else {"outputs": outputs},
            prompt_tokens=len(request.prompts[0].tokens),
            completion_tokens=sum(len(each.tokens) for each in completions),
        )

    def _values(self, completion: Completion) -> dict[str, Any]:
        values: dict[str, Any] = {"output": completion.text, "finish_reason": completion.finish_reason}
        if self._task.n > 1:
            values["completion_tokens"] = len(completion.tokens)
        if self._task.logprobs:
            values["logprobs"] = list(completion.logprobs or ())
        return values


def sampling_of(task: InferenceTask) -> SamplingParams:
    return SamplingParams(
        max_new_tokens=task.max_new_tokens,
        temperature=task.temperature,
        top_p=task.top_p,
        top_k=task.top_k,
        min_p=task.min_p,
        repetition_penalty=task.repetition_penalty,
        stop=task.stop,
        logprobs=task.logprobs,
        response_format=task.response_format,
    )
