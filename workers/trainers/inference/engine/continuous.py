"""Generates by the library's continuous batching: a request begins as soon as another one has ended."""

from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from workers.trainers.inference.engine.cache_size import CacheSize
from workers.trainers.inference.engine.equal_lengths import EqualLengths
from workers.trainers.inference.engine.interface import Completion, Interrupted, RequestRefused
from workers.trainers.inference.engine.paged_batch import PagedBatch
from workers.trainers.inference.engine.sampling import SampledPrompt, choose_each


class ContinuousBatches:
    """Answers prompts that each fit the cache; it lives for the time of a call."""

    def __init__(self, model: PreTrainedModel, size: CacheSize) -> None:
        self._model = model
        self._size = size

    @torch.inference_mode()
    def __call__(
        self, asked: Sequence[SampledPrompt], interrupted: Callable[[], bool]
    ) -> list[Completion | RequestRefused]:
        """Raises Interrupted."""
        running = {str(index): each.begin() for index, each in enumerate(asked)}
        blocks = self._size.blocks([each.most_tokens for each in asked])
        batch = PagedBatch(self._model, self._size, blocks, choose_each)
        for name, each in running.items():
            batch.add(name, each)
        while batch.prepare():
            if interrupted():
                raise Interrupted
            batch.step()
        if unanswered := sum(not each.finish_reason for each in running.values()):
            raise RuntimeError(f"the engine stopped with {unanswered} of {len(running)} requests unanswered")
        return self._with_spoiled(asked, interrupted, [each.sampler.completion(each) for each in running.values()])

    def _with_spoiled(
        self, asked: Sequence[SampledPrompt], interrupted: Callable[[], bool], found: list[Completion | RequestRefused]
    ) -> list[Completion | RequestRefused]:
        """Masked values of the shared cache are multiplied by 0, which leaves NaN of one request in those of all: what
        is not finite is computed once more where requests share nothing.
        """
        spoiled = [index for index, each in enumerate(found) if isinstance(each, RequestRefused)]
        if spoiled:
            apart = EqualLengths(self._model, self._model.config.pad_token_id or 0)
            again = apart([asked[index] for index in spoiled], interrupted)
            for index, each in zip(spoiled, again, strict=True):
                found[index] = each
        return found
