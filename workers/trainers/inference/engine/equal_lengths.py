"""Generates with `generate` for models that the library's continuous batching does not serve.

Prompts of one length share a batch, so that no padding comes before a token, which some of these models would read.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel, StoppingCriteria

from workers.trainers.inference.engine.interface import Completion, Interrupted, RequestRefused
from workers.trainers.inference.engine.sampling import Choose, RunningRequest, SampledPrompt, choose_each

MOST_ROWS = 32


class EqualLengths:
    """Answers prompts in batches of equally long ones."""

    def __init__(self, model: PreTrainedModel, padding: int) -> None:
        self._model: Any = model
        self._padding = padding

    def __call__(
        self, asked: Sequence[SampledPrompt], interrupted: Callable[[], bool]
    ) -> list[Completion | RequestRefused]:
        running = [each.begin() for each in asked]
        for group in _equally_long([len(each.prompt.tokens) for each in asked]):
            new = max(asked[index].sampler.most_tokens for index in group)
            self.generate([running[index] for index in group], choose_each, new, interrupted)
        return [each.sampler.completion(each) for each in running]

    def generate(
        self, running: Sequence[RunningRequest], choose: Choose, new: int, interrupted: Callable[[], bool]
    ) -> None:
        """Finish requests whose prompts have one length, in one batch. Raises Interrupted."""
        ids = torch.tensor([list(each.prompt.tokens) for each in running], device=self._model.device)
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=GenerationConfig(  # type: ignore[no-untyped-call]
                do_sample=False, max_new_tokens=new, pad_token_id=self._padding, eos_token_id=None
            ),
            logits_processor=[_Chosen(running, choose, self._padding)],
            stopping_criteria=[_Finished(running, interrupted)],
        )


def _equally_long(lengths: Sequence[int]) -> Iterator[list[int]]:
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if group and (lengths[index] < lengths[group[0]] or len(group) == MOST_ROWS):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


class _Chosen(LogitsProcessor):
    """Leaves only the token that the sampler has chosen."""

    def __init__(self, running: Sequence[RunningRequest], choose: Choose, padding: int) -> None:
        self._running = running
        self._choose = choose
        self._padding = padding

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:  # noqa: ARG002
        tokens = torch.full((len(scores), 1), self._padding, device=scores.device)
        rows = [row for row, each in enumerate(self._running) if not each.finish_reason]
        chosen = self._choose([self._running[row] for row in rows], scores[rows].float())
        tokens[rows, 0] = chosen
        return cast("torch.FloatTensor", torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0))


class _Finished(StoppingCriteria):
    """Ends the rows that the sampler has finished."""

    def __init__(self, running: Sequence[RunningRequest], interrupted: Callable[[], bool]) -> None:
        self._running = running
        self._interrupted = interrupted

    def __call__(self, input_ids: torch.LongTensor, scores: object, **_: object) -> torch.BoolTensor:  # noqa: ARG002
        if self._interrupted():
            raise Interrupted
        finished = [bool(each.finish_reason) for each in self._running]
        return cast("torch.BoolTensor", torch.tensor(finished, device=input_ids.device))
