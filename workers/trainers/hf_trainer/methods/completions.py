"""Completions of a policy by the engine of inference jobs: in the process that trains, or by rollouts."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

import torch.distributed as dist
from torch import nn
from transformers import PreTrainedTokenizerBase

from app.domain.spec.hyperparameters import rlhf
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.distributed import TIMEOUT
from workers.trainers.hf_trainer.loop.parallelism import WeightGathering, parallelism_of
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts.client import AWAY_SECONDS, LOAD_SECONDS, WeightHandover
from workers.trainers.rollouts.completer import SHARE_BESIDE_A_TRAINING, Completer, SamplingOptions
from workers.trainers.rollouts.places import places_to_ask, secret
from workers.trainers.rollouts.rollouts import BrokenOff, Rollouts
from workers.trainers.rollouts.waiting import Section
from workers.trainers.rollouts.weights import Weights

Values = dict[str, float]  # metrics of a step


class Completions(Protocol):
    """``version`` names the weights that the model has now."""

    def __call__(
        self, prompts: Sequence[Prompt], options: SamplingOptions, version: str
    ) -> tuple[list[list[int]], Values]:
        """The tokens of each completion, in the order of the prompts, and what is measured.

        Raises BrokenOff, on all ranks: the same ones may be asked for again.
        """
        ...

    def close(self) -> None:
        """The training is over."""
        ...


class _OfThisProcess:
    def __init__(self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, spec: RunSpec) -> None:
        self._completer = Completer(model, tokenizer, spec, gpu_share=SHARE_BESIDE_A_TRAINING)

    def __call__(
        self, prompts: Sequence[Prompt], options: SamplingOptions, version: str
    ) -> tuple[list[list[int]], Values]:
        del version
        begun = time.monotonic()
        found = [list(each) for each in self._completer(prompts, options)]
        return found, {"generation_seconds": time.monotonic() - begun}

    def close(self) -> None:
        """There is nothing to close."""


class _OfRollouts:
    """``section``: announced while ranks wait for the completions of others, whose rollout may be away; None: it is
    the only rank.
    """

    def __init__(self, model: nn.Module, rollouts: Rollouts, section: Section | None) -> None:
        self._model = model
        self._rollouts = rollouts
        self._section = section
        self._digests: dict[str, str] = {}  # of the base model, which no step changes

    def __call__(
        self, prompts: Sequence[Prompt], options: SamplingOptions, version: str
    ) -> tuple[list[list[int]], Values]:
        begun = time.monotonic()
        found: list[list[int]] = []
        handed: WeightHandover | None = None
        try:
            found, handed = self._rollouts.complete(prompts, options, Weights(version, self._model, self._digests))
        except BrokenOff:
            if self._section is None:
                raise
        seconds = time.monotonic() - begun
        if self._section is not None:
            with self._section("waiting for completions of other ranks", AWAY_SECONDS + LOAD_SECONDS):
                handed = _of_all_ranks(handed)
        if handed is None:
            raise BrokenOff
        return found, {
            "generation_seconds": seconds,
            "weights_seconds": handed.seconds,
            "weights_bytes": float(handed.bytes),
        }

    def close(self) -> None:
        self._rollouts.close()


def _of_all_ranks(handed: WeightHandover | None) -> WeightHandover | None:
    """Any rank hands over what a rollout lacks when it asks it. Waits for all of them. None: one has broken off."""
    gathered: list[WeightHandover | None] = [handed] * dist.get_world_size()
    dist.all_gather_object(gathered, handed)
    found = [each for each in gathered if each is not None]
    if len(found) < len(gathered):
        return None
    return WeightHandover(max(each.seconds for each in found), sum(each.bytes for each in found))


class _OfAllRanks:
    """Of a model that is divided: the first rank has the whole weights in its host's memory, and asks for all ranks."""

    def __init__(self, model: nn.Module, division: WeightGathering, rollouts: Rollouts) -> None:
        self._model = model
        self._division = division
        self._rollouts = rollouts
        self._weights: Weights | None = None
        # On the CPU, and apart from the training's own collectives.
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)

    def __call__(
        self, prompts: Sequence[Prompt], options: SamplingOptions, version: str
    ) -> tuple[list[list[int]], Values]:
        begun = time.monotonic()
        weights = self._gathered(version)
        gathered = time.monotonic() - begun
        ranks, leads = dist.get_world_size(), dist.get_rank() == 0
        asked: list[Any] | None = [None] * ranks if leads else None
        dist.gather_object([*prompts], asked, dst=0, group=self._group)
        answers: list[Any] | None = None
        handed = WeightHandover()
        if asked is not None:  # a failure here ends this rank, and by that what the others wait for
            answers = [None] * ranks
            with suppress(BrokenOff):
                found, handed = self._rollouts.complete(
                    [each for of_rank in asked for each in of_rank], options, weights
                )
                remaining = iter(found)
                answers = [list(islice(remaining, len(of_rank))) for of_rank in asked]
            weights.drop_copies()  # an evaluation may follow, for which the gathered ones stay
        own: list[Any] = [None]
        dist.scatter_object_list(own, answers, src=0, group=self._group)
        if own[0] is None:
            raise BrokenOff
        return own[0], {
            "generation_seconds": time.monotonic() - begun,
            "weights_seconds": gathered + handed.seconds,
            "weights_bytes": float(handed.bytes),
        }

    def _gathered(self, version: str) -> Weights:
        """All ranks have the same version, and gather together."""
        if self._weights is None or self._weights.version != version:
            self._weights = None  # before there is another copy
            gathered = self._division.gather(self._model)
            self._weights = Weights(version, self._model, self._division.digests, gathered=gathered)
        return self._weights

    def close(self) -> None:
        self._rollouts.close()


def completions_of(
    spec: RunSpec,
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    *,
    rank: int,
    section: Section,
    breaks_off: Callable[[], bool],
    environment: Mapping[str, str] = os.environ,
) -> Completions | None:
    """None: the trainer's own way is asked for. ``breaks_off``: whether a wait for rollouts ends here, by BrokenOff."""
    if spec.hyperparameters.get(rlhf.GENERATION_BACKEND) != rlhf.ENGINE:
        return None
    if places := places_to_ask(environment):
        rollouts = Rollouts(places, secret(environment), rank=rank, section=section, breaks_off=breaks_off)
        if (division := parallelism_of(spec.framework).division(spec, model)) is not None:
            return _OfAllRanks(model, division, rollouts)
        return _OfRollouts(model, rollouts, section if spec.world_size > 1 else None)
    return _OfThisProcess(model, tokenizer, spec)


def sampling_options(spec: RunSpec, ends: Sequence[int]) -> SamplingOptions:
    values: Mapping[str, Any] = spec.hyperparameters
    return SamplingOptions(
        max_new_tokens=int(values["max_completion_length"]),
        temperature=float(values["temperature"]),
        top_p=float(values["top_p"]),
        top_k=int(values["top_k"]),
        ends=tuple(ends),
    )


def seeded(spec: RunSpec, prompts: Sequence[Sequence[int]], use: str, step: int, first: int) -> list[Prompt]:
    """Each completion has a seed of its own, by its number among all of the step: neither ranks nor rollouts change it.

    ``use`` sets completions that are learned from apart from those of evaluations; ``first``: number of the first one.
    """
    place = f"{data_config(spec).seed}/{use}/{step}"
    return [
        Prompt(tokens=tokens, seed=_number(f"{place}/{number}")) for number, tokens in enumerate(prompts, start=first)
    ]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
