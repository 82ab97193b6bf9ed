"""A small model, prompts, and what asks rollouts for completions."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.unit.workers.trainers.inference.stand_in_engine import WORDS
from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.methods.completions import seeded
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts.completer import SamplingOptions
from workers.trainers.rollouts.places import InstanceAddress
from workers.trainers.rollouts.rollouts import Rollouts
from workers.trainers.rollouts.server import RolloutServer

SECRET = b"s" * 32
ENDS = (1,)
SAMPLED = SamplingOptions(max_new_tokens=6, temperature=1.0, top_p=0.95, top_k=0, ends=ENDS)
GREEDY = SamplingOptions(max_new_tokens=6, temperature=1.0, top_p=1.0, top_k=1, ends=ENDS)
Start = Callable[..., InstanceAddress]


def a_model(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """One that was made with another seed has other weights, and dropout."""
    torch.manual_seed(seed)
    sizes: Any = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids: Any = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=32, attention_dropout=0.5, **sizes, **ids)
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        parameter.data *= 4  # else the likeliest token is always the same
    return model


def prompts_of(spec: RunSpec, count: int = 10) -> list[Prompt]:
    rows = [[3 + number % 5] * (1 + number % 4) for number in range(count)]
    return seeded(spec, rows, "train", 0, 0)


def stop(*servers: RolloutServer) -> None:
    """As when their processes end."""
    for server in servers:
        server.close()


def asking(*places: InstanceAddress, secret: bytes = SECRET, rank: int = 0, away: float = 5.0, **more: Any) -> Rollouts:
    return Rollouts(places, secret, rank=rank, away_seconds=away, **more)
