"""The engine that uses transformers alone, which every node with the training extra has."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.classification import Classification
from workers.trainers.inference.engine.embedding import Embedder
from workers.trainers.inference.engine.generation import GenerationBackend, generation_of
from workers.trainers.inference.engine.interface import (
    Completion,
    Continuation,
    Likelihood,
    Pair,
    Pooling,
    Prompt,
    RequestRefused,
    SamplingParams,
    Scores,
    TokenIds,
    never,
)
from workers.trainers.inference.engine.likelihood import Likelihoods, MeasuredTokens, measured
from workers.trainers.inference.engine.loading import CLASSIFIER, ENCODER, GENERATOR, Loaded, context_length, load
from workers.trainers.inference.engine.prompt_reading import PromptReading
from workers.trainers.inference.engine.refusing import EngineLimits, answer_accepted
from workers.trainers.inference.engine.sampling import SampledPrompt, Sampler
from workers.trainers.inference.engine.structured import Grammars


class TransformersEngine:
    """A loaded model; see `interface.Engine`."""

    def __init__(self, spec: RunSpec) -> None:
        torch.set_num_threads(spec.threads_per_rank)
        self._loaded = load(spec)
        self._ends = _ends(self._loaded)
        # The model's own sampling settings would be added to those of a request.
        self._loaded.model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self._limits = EngineLimits(context_length(self._loaded), _vocabulary(self._loaded.model))
        self._padding = self.tokenizer.pad_token_id or 0
        self._gpu_share = spec.gpu_memory_fraction * (spec.gpu_memory_percent or 100) / 100
        self._ram_mb = spec.ram_mb
        self._grammars = Grammars(self.tokenizer, self._ends)
        self._generation: GenerationBackend | None = None  # found out by the first call
        # The library collects garbage after each call, which takes longer than the call when it searches all modules.
        gc.freeze()

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self._loaded.tokenizer

    @property
    def model(self) -> PreTrainedModel:
        """For measures that need more of it than an engine offers; in evaluation mode, on its device."""
        return self._loaded.model

    @property
    def model_directory(self) -> Path:
        """The files of the model; of its base model, if it is an adapter."""
        return self._loaded.directory

    @property
    def context_length(self) -> int:
        return self._limits.context

    def generate(
        self, prompts: Sequence[Prompt], sampling: SamplingParams, interrupted: Callable[[], bool] = never
    ) -> list[Completion | RequestRefused]:
        """Raises Interrupted, and InvalidConfig when the model does not generate."""
        sampler = self.sampler(sampling)
        return self.generate_each([SampledPrompt(each, sampler) for each in prompts], interrupted)

    def generate_each(
        self, asked: Sequence[SampledPrompt], interrupted: Callable[[], bool] = never
    ) -> list[Completion | RequestRefused]:
        """As `generate`, for prompts of which each has a sampler of its own."""
        generation = self.generation()
        limits = self.limits(generation)
        return answer_accepted(
            asked,
            lambda each: limits.refuse(each.prompt.tokens, each.sampler.most_tokens),
            lambda accepted: generation.answer(accepted, interrupted),
        )

    @property
    def labels(self) -> int:
        """Of a sequence classifier; 0: the model is none."""
        return int(self.model.config.num_labels or 0) if self._loaded.kind == CLASSIFIER else 0

    @property
    def generates(self) -> bool:
        return self._loaded.kind == GENERATOR

    def generation(self) -> GenerationBackend:
        """How this model generates, which the first call finds out. Raises InvalidConfig when it does not."""
        self._need(GENERATOR, "generates text")
        if self._generation is None:
            self._generation = generation_of(self.model, self.tokenizer, self._ends, self._gpu_share, self._ram_mb)
        return self._generation

    def sampler(self, sampling: SamplingParams, *, is_shared: bool = False) -> Sampler:
        """``is_shared``: its steps are those of other requests, too. Raises InvalidConfig for a response format that
        can't be applied.
        """
        grammar = self._grammars.of(sampling.response_format, is_shared=is_shared)
        return Sampler(sampling, self.tokenizer, self._ends, grammar)

    def limits(self, generation: GenerationBackend | None) -> EngineLimits:
        """Of prompts with their answers; None: of texts that are only read."""
        return replace(self._limits, held=generation.longest) if generation else self._limits

    def likelihoods(
        self, continuations: Sequence[Continuation], interrupted: Callable[[], bool] = never
    ) -> list[Likelihood | RequestRefused]:
        """Raises Interrupted, and InvalidConfig when the model is no language model."""
        self._need(GENERATOR, "is a language model")

        def refuse(request: MeasuredTokens) -> RequestRefused | None:
            return self._limits.refuse(request.read) or self._limits.refuse(request.tokens[-1:])

        requests = [measured(each, self.tokenizer) for each in continuations]
        likelihoods = Likelihoods(self.model, self._padding)
        return answer_accepted(requests, refuse, lambda accepted: likelihoods(accepted, interrupted))

    def prompt_reading(self, tokens: TokenIds, top: int) -> PromptReading:
        """How likely each token is after those before it, with ``top`` of the likeliest. Raises InvalidConfig when the
        model is no language model.
        """
        size = self.generation().size
        return PromptReading(self.model, tokens, top, size.step_tokens if size else None)

    def scores(
        self, texts: Sequence[TokenIds], interrupted: Callable[[], bool] = never
    ) -> list[Scores | RequestRefused]:
        """Raises Interrupted, and InvalidConfig when the model has no head for scores."""
        self._need(CLASSIFIER, "gives scores (a reward model or a sequence classifier)")
        classification = Classification(self.model, self._padding)
        return answer_accepted(texts, self._limits.refuse, lambda accepted: classification(accepted, interrupted))

    def pair_scores(
        self, pairs: Sequence[Pair], interrupted: Callable[[], bool] = never
    ) -> list[Scores | RequestRefused]:
        """As `scores`, of pairs of texts."""
        self._need(CLASSIFIER, "gives scores (a reward model or a sequence classifier)")
        classification = Classification(self.model, self._padding)
        return answer_accepted(
            pairs,
            lambda each: self._limits.refuse(each.tokens),
            lambda accepted: classification.pairs(accepted, interrupted),
        )

    def embeddings(
        self, texts: Sequence[TokenIds], pooling: Pooling, interrupted: Callable[[], bool] = never
    ) -> list[NDArray[np.float32] | RequestRefused]:
        """Raises Interrupted and InvalidConfig."""
        embedding = Embedder(self.model, self._padding)
        return answer_accepted(texts, self._limits.refuse, lambda accepted: embedding(accepted, pooling, interrupted))

    def close(self) -> None:
        """Free the model's memory; the engine can't be used any more."""
        self._generation = None
        del self._loaded
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _need(self, kind: str, what: str) -> None:
        if self._loaded.kind != kind:
            raise InvalidConfig(
                f"model: this task needs a model that {what}, but {self._loaded.directory.name} was loaded as "
                f"{_KINDS[self._loaded.kind]}; name another model or another task"
            )


_KINDS = {GENERATOR: "a language model", CLASSIFIER: "a sequence classifier", ENCODER: "an encoder"}


def _ends(loaded: Loaded) -> frozenset[int]:
    """The end-of-sequence tokens: those of the model's generation settings, and the tokenizer's."""
    settings = getattr(loaded.model, "generation_config", None)  # an encoder has none
    own: Any = getattr(settings, "eos_token_id", None)
    found = own if isinstance(own, list) else [own]
    return frozenset(int(each) for each in (*found, loaded.tokenizer.eos_token_id) if each is not None)


def _vocabulary(model: PreTrainedModel) -> int:
    return int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
