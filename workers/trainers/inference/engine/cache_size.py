"""How much memory the cache of a continuous batch may take: a share of the job's own, never of what is free."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

_GIBIBYTE = 1 << 30
PAGE = 32  # tokens


@dataclass(frozen=True)
class CacheSize:
    """``tokens``: of all requests that are held at once; ``step_tokens``: most that one step computes."""

    tokens: int
    step_tokens: int
    requests: int

    def blocks(self, lengths: Sequence[int]) -> int:
        """Blocks for requests of these lengths, of which the longest ones run together."""
        pages = sorted((-(-length // PAGE) for length in lengths), reverse=True)[: self.requests]
        # Two more: the library starts no request while fewer than a part of the blocks are free.
        return min(max(1, self.tokens // PAGE), sum(pages) + 2)

    @property
    def longest(self) -> int:
        """Most tokens of one request."""
        return max(1, self.tokens // PAGE) * PAGE


def cache_size(model: PreTrainedModel, gpu_share: float = 1.0, ram_mb: int = 0) -> CacheSize:
    """The size for this model on its device. On a CPU it depends on the model and on ``ram_mb``, the limit in the job's
    document, alone: it decides which requests share a batch, on every node in the same way.
    """
    step_tokens, requests = (1024, 64) if model.device.type == "cuda" else (256, 32)
    budget = _gpu_bytes(model.device, gpu_share) if model.device.type == "cuda" else _host_bytes(ram_mb)
    return CacheSize(budget // _bytes_per_token(model, step_tokens), step_tokens, requests)


def _gpu_bytes(device: torch.device, share: float) -> int:
    total = torch.cuda.get_device_properties(device).total_memory
    return max(0, int(0.8 * (total * share - torch.cuda.memory_allocated(device))))


def _host_bytes(ram_mb: int) -> int:
    """A gibibyte, or a quarter of a limit that is lower than four; 0: there is none."""
    return min(_GIBIBYTE, (ram_mb << 20) // 4) if ram_mb else _GIBIBYTE


def _bytes_per_token(model: PreTrainedModel, step_tokens: int) -> int:
    """Of a token in the cache: its keys and values in all layers, those read in one layer, and its column of the
    attention mask.
    """
    config = model.config.get_text_config()
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    numbers = (2 * kv_heads * int(config.num_hidden_layers) + 2 * heads + kv_heads) * size + step_tokens
    return numbers * model.dtype.itemsize + 8
