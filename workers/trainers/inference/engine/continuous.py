"""Generates by the library's continuous batching: a request begins as soon as another one has ended."""

from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from workers.trainers.inference.engine.cache_size import CacheSize
from workers.trainers.inference.engine.equal_lengths import EqualLengths
from workers.trainers.inference.engine.interface import Completion, Interrupted, Prompt, Refused
from workers.trainers.inference.engine.paged_batch import PagedBatch
from workers.trainers.inference.engine.sampling import Sampler


class ContinuousBatches:
    """Answers prompts that each fit the cache; it lives for the time of a call."""

    def __init__(self, model: PreTrainedModel, size: CacheSize) -> None:
        self._model = model
        self._size = size

    @torch.inference_mode()
    def __call__(
        self, prompts: Sequence[Prompt], sampler: Sampler, new: int, interrupted: Callable[[], bool]
    ) -> list[Completion | Refused]:
        """Raises Interrupted."""
        running = {str(index): sampler.begin(each) for index, each in enumerate(prompts)}
        blocks = self._size.blocks([len(each.tokens) + new for each in prompts])
        batch = PagedBatch(self._model, self._size, blocks, sampler.choose)
        for name, each in running.items():
            batch.add(name, each)
        while batch.prepare():
            if interrupted():
                raise Interrupted
            batch.step()
        if unanswered := sum(not each.finish_reason for each in running.values()):
            raise RuntimeError(f"the engine stopped with {unanswered} of {len(running)} requests unanswered")
        return self._with_spoiled(prompts, sampler, new, interrupted, [sampler.completion(e) for e in running.values()])

    def _with_spoiled(
        self,
        prompts: Sequence[Prompt],
        sampler: Sampler,
        new: int,
        interrupted: Callable[[], bool],
        found: list[Completion | Refused],
    ) -> list[Completion | Refused]:
        """Masked values of the shared cache are multiplied by 0, which leaves NaN of one request in those of all: what
        is not finite is computed once more where requests share nothing.
        """
        spoiled = [index for index, each in enumerate(found) if isinstance(each, Refused)]
        if spoiled:
            apart = EqualLengths(self._model, self._model.config.pad_token_id or 0)
            again = apart([prompts[index] for index in spoiled], sampler, new, interrupted)
            for index, each in zip(spoiled, again, strict=True):
                found[index] = each
        return found
