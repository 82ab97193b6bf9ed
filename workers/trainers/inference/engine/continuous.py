"""Generates by the library's continuous batching: a request begins as soon as another one has ended.

The library's manager runs in a thread of its own, one request that does not fit ends it for all, and it has one setting
of sampling for all. Here its parts are driven step by step by the caller's thread, so that batches depend on the
requests alone, and tokens are chosen by our sampler.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import ContinuousBatchingManager
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessor,
    ContinuousBatchingLogitsProcessorList,
)

from workers.trainers.inference.engine.cache_size import PAGE, CacheSize
from workers.trainers.inference.engine.equal_lengths import EqualLengths
from workers.trainers.inference.engine.interface import Completion, Interrupted, Prompt, Refused
from workers.trainers.inference.engine.sampling import Running, Sampler


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
        chosen = _Chosen(running, sampler)
        manager = self._manager(chosen, self._size.blocks([len(each.tokens) + new for each in prompts]))
        for name, each in running.items():
            manager.add_request(list(each.prompt.tokens), request_id=name)
        self._run(manager, chosen, interrupted)
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

    def _run(self, manager: ContinuousBatchingManager, chosen: "_Chosen", interrupted: Callable[[], bool]) -> None:
        """The body of the manager's own loop."""
        processor: Any = manager.batch_processor
        while processor.prepare_next_batch():
            if interrupted():
                raise Interrupted
            batch = processor.inputs_and_outputs.get_model_kwargs()
            processor.model_runner.compute_batch(self._model, batch)
            processor.inputs_and_outputs.retrieve_device_outputs()
            processor.update_batch()
            for name in chosen.finished():
                # As the processor does with requests that it has finished itself: a full cache holds back new ones.
                processor.scheduler.finish_request(name)
                processor.scheduler.block_new_requests = False

    def _manager(self, chosen: "_Chosen", blocks: int) -> ContinuousBatchingManager:
        model: Any = self._model
        manager: ContinuousBatchingManager = model.init_continuous_batching(
            # The sampler decides when a request ends.
            GenerationConfig(do_sample=False, max_new_tokens=None, eos_token_id=-1),  # type: ignore[no-untyped-call]
            ContinuousBatchingConfig(
                page_size=PAGE,
                num_blocks=blocks,
                max_batch_tokens=self._size.step_tokens,
                max_requests_per_batch=self._size.requests,
                max_memory_percent=1.0,
                # Blocks shared by requests would tell, by the time of an answer, what others have asked.
                allow_block_sharing=False,
                use_async_batching=False,
                use_cuda_graph=False,
                auto_switch_to_flash=False,
            ),
        )
        processors = ContinuousBatchingLogitsProcessorList(LogitsProcessorList([chosen]))
        processors.tensors_required = 1
        manager.logit_processor = processors
        manager.warmup()  # makes the batch processor
        return manager


class _Chosen(ContinuousBatchingLogitsProcessor):
    """Leaves only the tokens that the sampler has chosen."""

    def __init__(self, running: dict[str, Running], sampler: Sampler) -> None:
        self.supported_kwargs = {}
        self.ignored_kwargs = ()
        self._running = running
        self._sampler = sampler
        self._names: list[str] = []

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
        """Called before each step with the requests that get a token, in the order of their logits."""
        self._names = [each.state.request_id for each in requests_with_new_token]
        return torch.zeros(len(self._names), dtype=torch.int32)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        # Further rows belong to requests whose prompt is not read to its end yet.
        rows = len(self._names)
        if not rows:
            return scores
        tokens = self._sampler.choose([self._running[name] for name in self._names], scores[:rows])
        scores[:rows] = torch.full_like(scores[:rows], -torch.inf).scatter_(1, tokens.unsqueeze(1), 0.0)
        return scores

    def finished(self) -> list[str]:
        """The requests that the last step has finished."""
        return [name for name in self._names if self._running[name].finish_reason]
