"""Completes prompts with the engine of inference jobs, around a model that is being trained or gets its weights."""

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from workers.rank.run_context import RunSpec
from workers.trainers.failures import TrainingFailure
from workers.trainers.hf_trainer.model.pretrained import precision
from workers.trainers.inference.engine.generation import GenerationBackend, generation_of
from workers.trainers.inference.engine.interface import (
    LENGTH,
    STOP,
    Completion,
    Prompt,
    RequestRefused,
    SamplingParams,
    never,
)
from workers.trainers.inference.engine.refusing import EngineLimits, answer_accepted
from workers.trainers.inference.engine.sampling import RunningRequest, SampledPrompt, Sampler

_ANY_LENGTH = 1 << 40  # the training's own lengths have been checked
# The rest of a GPU's memory is for gradients and the optimizer, which come after the first completions.
SHARE_BESIDE_A_TRAINING = 0.3


class NotCompleted(TrainingFailure):
    """A prompt can't be completed."""

    error_type = "TRAINER_ERROR"


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are chosen; ``ends``: the tokens that end a completion, and are a part of it."""

    max_new_tokens: int
    temperature: float
    top_p: float
    top_k: int
    ends: tuple[int, ...]

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "SamplingOptions":
        return cls(**{**document, "ends": tuple(document["ends"])})


class Completer:
    """The completions depend on prompts, seeds and weights; which prompts share a call changes them by rounding alone.

    ``gpu_share``: of the memory that the job may use on this GPU.
    """

    def __init__(
        self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, spec: RunSpec, *, gpu_share: float = 1.0
    ) -> None:
        self._module = model
        self._base: PreTrainedModel = _base_of(model)
        self._tokenizer = tokenizer
        self._spec = spec
        self._gpu_share = gpu_share * spec.gpu_memory_fraction * (spec.gpu_memory_percent or 100) / 100
        self._generation: GenerationBackend | None = None  # found out by the first call

    def __call__(self, prompts: Sequence[Prompt], options: SamplingOptions) -> list[tuple[int, ...]]:
        """The tokens of each completion. Raises NotCompleted."""
        sampler = _WholeTokens(options, self._tokenizer)
        with _at_rest(self._module, self._base, self._spec):
            generation = self._found(options.ends)
            vocabulary = int(self._base.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
            limits = EngineLimits(_ANY_LENGTH, vocabulary, generation.longest)
            found = answer_accepted(
                [SampledPrompt(each, sampler) for each in prompts],
                lambda each: limits.refuse(each.prompt.tokens, each.sampler.most_tokens),
                lambda accepted: generation.answer(accepted, never),
            )
        return [_tokens_of(each) for each in found]

    def _found(self, ends: Collection[int]) -> GenerationBackend:
        if self._generation is None:
            # The library collects garbage after each call, which takes longer than the call when it searches all that
            # modules have made.
            gc.collect()
            gc.freeze()
            self._generation = generation_of(self._base, self._tokenizer, ends, self._gpu_share, self._spec.ram_mb)
        return self._generation


class _WholeTokens(Sampler):
    """Keeps the token that ends a completion, which a policy learns too, and decodes nothing."""

    def __init__(self, options: SamplingOptions, tokenizer: PreTrainedTokenizerBase) -> None:
        sampling = SamplingParams(
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
        )
        super().__init__(sampling, tokenizer, frozenset(options.ends))
        self._last = options.max_new_tokens
        self._final = frozenset(options.ends)

    def add(self, running: RunningRequest, token: int) -> None:
        running.tokens.append(token)
        if token in self._final:
            running.finish_reason = STOP
        elif len(running.tokens) >= self._last:
            running.finish_reason = LENGTH

    def completion(self, running: RunningRequest) -> Completion | RequestRefused:
        if running.finish_reason not in (STOP, LENGTH):
            return super().completion(running)
        return Completion(text="", tokens=tuple(running.tokens), finish_reason=running.finish_reason)


def _tokens_of(found: Completion | RequestRefused) -> tuple[int, ...]:
    if isinstance(found, RequestRefused):
        raise NotCompleted(f"a prompt can't be completed: {found.message}")
    return found.tokens


def _base_of(model: nn.Module) -> PreTrainedModel:
    """The model itself; an adapter's layers are inside of it."""
    found: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    base: PreTrainedModel = found
    return base


@contextmanager
def _at_rest(model: nn.Module, base: PreTrainedModel, spec: RunSpec) -> Iterator[None]:
    """Without dropout, in the precision of the training, and without the model's own sampling settings."""
    training = [each for each in model.modules() if each.training]
    settings = base.generation_config
    base.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    model.eval()
    try:
        # The library draws numbers that decide nothing: those of the training must not depend on it.
        with torch.random.fork_rng(devices=_gpus(base)), _computing(base, spec):
            yield
    finally:
        for each in training:
            each.training = True
        base.generation_config = settings


def _gpus(base: PreTrainedModel) -> list[torch.device]:
    return [base.device] if base.device.type == "cuda" else []


def _computing(base: PreTrainedModel, spec: RunSpec) -> AbstractContextManager[object]:
    """A training keeps float32 weights and computes in less; a rollout's weights are in what it computes in."""
    found = precision(spec)
    if not (found.bf16 or found.fp16) or base.dtype != torch.float32:
        return nullcontext()
    return torch.autocast("cuda", dtype=torch.bfloat16 if found.bf16 else torch.float16)
