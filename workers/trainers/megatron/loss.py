"""Next-token loss and metrics with a vocabulary sharded across ranks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from megatron.core.transformer.module import MegatronModule

from workers.trainers.data.encoded import NOT_LEARNED
from workers.trainers.megatron.batches import Batch

Measured = dict[str, torch.Tensor]
# Below any logit, while its probability times its logarithm is still 0, not NaN.
_NEVER = -1e30


def forward(
    vocabulary: int, batches: Iterator[Batch], model: MegatronModule
) -> tuple[torch.Tensor, Callable[..., Any]]:
    """One forward pass in the form that Megatron's schedules call, and the loss function for the last stage.

    The loss function returns the summed loss over labelled tokens, their number, and sums of metrics.
    """
    batch = next(batches)
    tokens = batch["input_ids"].cuda()
    length = tokens.shape[1]
    positions = torch.arange(length, device="cuda").expand_as(tokens)
    # Padding is on the right, so no labelled token attends to it.
    hidden = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda").triu(1)
    output = model(input_ids=tokens, position_ids=positions, attention_mask=hidden)
    return output, partial(_loss, batch["labels"].cuda(), vocabulary)


def _loss(labels: torch.Tensor, vocabulary: int, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Measured]:
    # Each position predicts the next token.
    following = labels[:, 1:]
    learned = following != NOT_LEARNED
    targets = following[learned]
    chosen = _without_padding(logits[:, :-1][learned].float(), vocabulary)
    measured = _measures(chosen.detach(), targets)
    losses: torch.Tensor = vocab_parallel_cross_entropy(chosen.unsqueeze(1), targets.unsqueeze(1))
    count = learned.sum().int()
    return losses.sum(), count, {"loss": losses.detach().double().sum(), "learned": count.double(), **measured}


def _without_padding(logits: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Without the rows that only pad the vocabulary to a divisible size."""
    rest = vocabulary - _offset(logits)
    if rest >= logits.shape[-1]:
        return logits
    columns = torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(columns >= rest, _NEVER)


def _offset(logits: torch.Tensor) -> int:
    return int(logits.shape[-1]) * int(parallel_state.get_tensor_model_parallel_rank())


@torch.no_grad()
def _measures(logits: torch.Tensor, targets: torch.Tensor) -> Measured:
    """Sums over tokens: correct predictions, and the entropy of the predictions, in nats."""
    highest, place = logits.max(-1)
    peak = _over_ranks(highest.clone(), dist.ReduceOp.MAX)
    # Of equal logits the first one counts, as with an unsharded vocabulary.
    found = torch.where(highest == peak, place + _offset(logits), torch.iinfo(torch.int64).max)
    foreseen = _over_ranks(found, dist.ReduceOp.MIN) == targets
    shifted = logits - peak.unsqueeze(-1)
    weights = shifted.exp()
    total, weighted = _over_ranks(torch.stack([weights.sum(-1), (weights * shifted).sum(-1)]), dist.ReduceOp.SUM)
    entropy = total.log() - weighted / total
    return {"mean_token_accuracy": foreseen.double().sum(), "entropy": entropy.double().sum()}


def _over_ranks(values: torch.Tensor, how: dist.ReduceOp.RedOpType) -> torch.Tensor:
    dist.all_reduce(values, op=how, group=parallel_state.get_tensor_model_parallel_group())
    return values
