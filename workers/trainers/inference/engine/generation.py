"""Which way of generating serves a model: continuous batching, or batches of equally long prompts."""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.failures import is_out_of_memory
from workers.trainers.inference.engine.cache_size import PAGE, CacheSize, cache_size
from workers.trainers.inference.engine.continuous import ContinuousBatches
from workers.trainers.inference.engine.equal_lengths import EqualLengths
from workers.trainers.inference.engine.interface import Completion, Prompt, RequestRefused, SamplingParams, never
from workers.trainers.inference.engine.sampling import SampledPrompt, Sampler

_LOG = logging.getLogger(__name__)

# Attentions that read the paged cache. The library replaces eager by one that breaks everything else that the model is
# used for.
_PAGED = ("sdpa", "flash_attention_2", "flash_attention_3")
_LAYERS = {"full_attention", "sliding_attention"}
_PROBES = (5, 2, 9)  # tokens of the prompts that are tried
_PROBE = SamplingParams(max_new_tokens=3, logprobs=True)
_TOLERANCE = {torch.float32: 1e-2}  # of log-probabilities; rounding makes 1e-5
_LOW_PRECISION_TOLERANCE = 0.5


class Generate(Protocol):
    """Answers prompts that have been accepted."""

    def __call__(
        self, asked: Sequence[SampledPrompt], interrupted: Callable[[], bool]
    ) -> list[Completion | RequestRefused]: ...


@dataclass(frozen=True)
class GenerationBackend:
    """``size``: of the paged cache of continuous batching; None: it does not serve the model."""

    answer: Generate
    size: CacheSize | None = None

    @property
    def longest(self) -> int | None:
        """Most tokens of prompt and answer that its memory holds; None: as many as the model takes."""
        return self.size.longest if self.size else None


def generation_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    ends: Collection[int],
    gpu_share: float = 1.0,
    ram_mb: int = 0,
) -> GenerationBackend:
    """Continuous batching where it gives the numbers of `generate`, which is tried once."""
    plain = EqualLengths(model, tokenizer.pad_token_id or 0)
    if not _may_be_paged(model):
        return GenerationBackend(plain)
    size = cache_size(model, gpu_share, ram_mb)
    continuous = ContinuousBatches(model, size)
    if size.tokens < PAGE * len(_PROBES) or not _serves(
        continuous, plain, model, lambda: Sampler(_PROBE, tokenizer, ends)
    ):
        return GenerationBackend(plain)
    return GenerationBackend(continuous, size)


def _serves(
    continuous: ContinuousBatches, plain: EqualLengths, model: PreTrainedModel, sampler: Callable[[], Sampler]
) -> bool:
    vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    shared = sampler()
    prompts = [Prompt(tokens=[(7 * place + count) % vocabulary for place in range(count)]) for count in _PROBES]
    try:
        answers = continuous([SampledPrompt(each, shared) for each in prompts], never)
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        _LOG.warning("continuous batching does not serve this model (%s: %s)", type(error).__name__, error)
        return False
    expected = [plain([SampledPrompt(each, sampler())], never)[0] for each in prompts]
    alike = all(map(_alike(model.dtype), answers, expected))
    if not alike:
        _LOG.warning("continuous batching gives other numbers for this model; prompts of one length share batches")
    return alike


def _may_be_paged(model: PreTrainedModel) -> bool:
    config: Any = model.config
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ())
    return (
        not config.is_encoder_decoder
        and hasattr(config.get_text_config(), "num_attention_heads")
        and config._attn_implementation in _PAGED  # noqa: SLF001  (its only name)
        and layers <= _LAYERS
        and type(model).__module__.startswith("transformers.")  # not code that came with the model
    )


def _alike(dtype: torch.dtype) -> Callable[[Completion | RequestRefused, Completion | RequestRefused], bool]:
    """Whether two answers have the same numbers, up to rounding; where tokens differ by it, so far."""
    tolerance = _TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE)

    def compare(found: Completion | RequestRefused, expected: Completion | RequestRefused) -> bool:
        if isinstance(found, RequestRefused) or isinstance(expected, RequestRefused):
            return type(found) is type(expected)
        pairs = zip(found.logprobs or (), expected.logprobs or (), strict=False)
        return all(math.isclose(*pair, rel_tol=0, abs_tol=tolerance) for pair in pairs)

    return compare
