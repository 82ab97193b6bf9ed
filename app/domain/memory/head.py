"""Bytes of the head: trl computes log-probabilities tile by tile, so that no tensor has a logit for every token."""

from dataclasses import dataclass

from app.domain.memory.architecture import Architecture
from app.domain.memory.work import Work

_FLOAT32 = 4
# trl 1.16: trl.kernels.chunked_logprob and trl.trainer.utils.
_TILE_TOKENS, _TILE_COLUMNS = 4096, 32768
# Without Triton a tile's gradient is made by torch operations, of which this many tensors of its size live at once.
_TENSORS_OF_A_TILE = 7.25
_TENSORS_OF_A_FORWARD_TILE = 2.5
# Full logits: as computed, in float32, their log-softmax, and gradients of both.
_TENSORS_OF_LOGITS = 5


@dataclass(frozen=True, kw_only=True)
class HeadBytes:
    """``kept`` from the forward to the backward pass; ``working`` while the loss and its gradient are computed."""

    kept: int
    working: int


def of_head(model: Architecture, work: Work) -> HeadBytes:
    number, tokens = work.numerics, work.tokens
    norm = tokens * model.hidden * (_FLOAT32 + number.residual)
    if work.scores:
        return HeadBytes(kept=norm, working=0)
    hidden, logits = tokens * model.hidden * number.residual, tokens * model.vocabulary * _FLOAT32
    if work.framework == "MEGATRON":
        return HeadBytes(kept=norm, working=_TENSORS_OF_LOGITS * logits)
    if work.full_logits:
        # Label smoothing: trl measures with the tiles while the loss keeps its logits.
        measured = _tile(model, work, tensors=_TENSORS_OF_A_FORWARD_TILE) + 2 * logits
        return HeadBytes(kept=norm, working=max(measured, _TENSORS_OF_LOGITS * logits))
    gradient = tokens * model.hidden * _FLOAT32
    return HeadBytes(kept=norm + hidden, working=_tile(model, work, tensors=_TENSORS_OF_A_TILE) + gradient)


def _tile(model: Architecture, work: Work, *, tensors: float) -> int:
    """The buffer of a tile has all its columns, however small the vocabulary is."""
    rows, number = min(work.tokens, _TILE_TOKENS), work.numerics
    in_torch = int(tensors * rows * min(model.vocabulary, _TILE_COLUMNS) * _FLOAT32) if number.on_cpu else 0
    return rows * _TILE_COLUMNS * number.compute + in_torch
