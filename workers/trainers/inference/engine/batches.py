"""Padded batches of requests by length, under a fixed number of tokens: a function of the requests alone."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from transformers import PreTrainedModel

from workers.trainers.inference.engine.interface import Interrupted, TokenIds

Answer = TypeVar("Answer")
Batch = tuple[torch.Tensor, torch.Tensor]  # token ids and attention mask, both (rows, tokens)

# Logits held at once, and tokens of a batch at most: they decide how requests share a batch, and with that the last bit
# of every number, so they depend on nothing but the kind of device.
_LOGITS = {"cpu": 1 << 25, "cuda": 1 << 29}
_TOKENS = {"cpu": 4096, "cuda": 32768}
_ROWS = 256


def token_budget(model: PreTrainedModel, *, logits: bool) -> int:
    """Most tokens of a batch, padding included; with `logits` for each of them."""
    kind = "cuda" if model.device.type == "cuda" else "cpu"
    if not logits:
        return _TOKENS[kind]
    vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    return max(1, min(_TOKENS[kind], _LOGITS[kind] // vocabulary))


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of the requests that share a batch, the longest first, so that memory runs out at once or never."""
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if group and (lengths[group[0]] * (len(group) + 1) > budget or len(group) == _ROWS):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def padded(rows: Sequence[TokenIds], padding: int, device: torch.device) -> Batch:
    """The rows padded on the right, and which of their tokens are none."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), padding, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
        mask[row, : len(tokens)] = 1
    return ids.to(device), mask.to(device)


def answered(
    requests: Sequence[TokenIds],
    budget: int,
    answer: Callable[[list[int]], Sequence[Answer]],
    interrupted: Callable[[], bool],
) -> list[Answer]:
    """The answers in the order of the requests; `answer` gives those of one batch. Raises Interrupted."""
    found: dict[int, Answer] = {}
    for group in by_length([len(each) for each in requests], budget):
        if interrupted():
            raise Interrupted
        with torch.inference_mode():
            found.update(zip(group, answer(group), strict=True))
    return [found[index] for index in range(len(requests))]
