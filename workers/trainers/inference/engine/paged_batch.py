"""The library's continuous batching, driven step by step by the caller's thread.

The library's manager runs in a thread of its own, one request that does not fit ends it for all, and it has one setting
of sampling for all. Here batches depend on the requests alone, and tokens are chosen by our sampler.
"""

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
from workers.trainers.inference.engine.sampling import Choose, RunningRequest


class PagedBatch:
    """Requests that share the steps of a model and a cache of `blocks` pages; all of them together have to fit it."""

    def __init__(self, model: PreTrainedModel, size: CacheSize, blocks: int, choose: Choose) -> None:
        self._model = model
        self._chosen = _Chosen(choose)
        self._manager = _manager(model, size, blocks, self._chosen)
        self._processor: Any = self._manager.batch_processor
        self._parked: dict[str, tuple[Any, bool]] = {}  # of requests that take no part: see _withdraw

    def add(self, name: str, running: RunningRequest) -> None:
        """A request that takes part from now on, also one that has tokens of its answer already."""
        self._chosen.running[name] = running
        self._manager.add_request([*running.prompt.tokens, *running.tokens], request_id=name)

    def prepare(self) -> bool:
        """Prepare a step; False: there is nothing to do."""
        return bool(self._processor.prepare_next_batch())

    def step(self) -> list[str]:
        """Compute what is prepared; the requests that got a token or a reason to end. The ended ones are gone."""
        processor = self._processor
        processor.model_runner.compute_batch(self._model, processor.inputs_and_outputs.get_model_kwargs())
        processor.inputs_and_outputs.retrieve_device_outputs()
        processor.update_batch()
        names = self._chosen.names
        for name in names:
            if self._chosen.running[name].finish_reason:
                self.remove(name)
        return names

    def remove(self, name: str) -> None:
        """Free the memory of a request, which a step has been prepared for."""
        self._chosen.running.pop(name, None)
        if self._parked.pop(name, None) is None:
            self._withdraw(name)
        scheduler = self._processor.scheduler
        scheduler.finish_request(name)
        # As the processor does with requests that it has finished itself: a full cache holds back new ones.
        scheduler.block_new_requests = False

    def park(self, name: str) -> None:
        """A request, which a step has been prepared for, takes part no more for now; it keeps its memory."""
        self._parked[name] = self._withdraw(name)

    def unpark(self, name: str) -> None:
        """A parked request takes part again."""
        state, is_active = self._parked.pop(name)
        if is_active:
            self._processor.scheduler.active_requests[name] = state
        else:
            self._processor.scheduler.add_waiting_request(state)

    def _withdraw(self, name: str) -> tuple[Any, bool]:
        """The library's state of a request, and whether it had begun; the scheduler knows it no more."""
        scheduler = self._processor.scheduler
        if name in scheduler.waiting_requests:
            scheduler.waiting_requests_order.remove(name)
            return scheduler.waiting_requests.pop(name), False
        return scheduler.active_requests.pop(name, None), True


def _manager(base: PreTrainedModel, size: CacheSize, blocks: int, chosen: "_Chosen") -> ContinuousBatchingManager:
    model: Any = base
    manager: ContinuousBatchingManager = model.init_continuous_batching(
        # The sampler decides when a request ends.
        GenerationConfig(do_sample=False, max_new_tokens=None, eos_token_id=-1),  # type: ignore[no-untyped-call]
        ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=blocks,
            max_batch_tokens=size.step_tokens,
            max_requests_per_batch=size.requests,
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

    def __init__(self, choose: Choose) -> None:
        self.supported_kwargs = {}
        self.ignored_kwargs = ()
        self.running: dict[str, RunningRequest] = {}
        self.names: list[str] = []  # of the requests that the last step gives a token
        self._choose = choose

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
        """Called before each step with the requests that get a token, in the order of their logits."""
        self.names = [each.state.request_id for each in requests_with_new_token]
        return torch.zeros(len(self.names), dtype=torch.int32)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        # Further rows belong to requests whose prompt is not read to its end yet.
        rows = len(self.names)
        if not rows:
            return scores
        tokens = self._choose([self.running[name] for name in self.names], scores[:rows])
        scores[:rows] = torch.full_like(scores[:rows], -torch.inf).scatter_(1, tokens.unsqueeze(1), 0.0)
        return scores
