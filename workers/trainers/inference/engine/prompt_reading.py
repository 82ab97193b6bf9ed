"""How likely a prompt's tokens are, one by one, read in pieces between which others may use the model."""

from typing import Any

import torch
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel

from workers.trainers.inference.engine.batches import token_budget
from workers.trainers.inference.engine.interface import RequestRefused, TokenIds
from workers.trainers.inference.engine.refusing import not_finite
from workers.trainers.inference.engine.sampling import Top


class PromptReading:
    """Of one prompt. ``piece``: most tokens that are read at once; None: the model has no cache that could be kept."""

    def __init__(self, model: PreTrainedModel, tokens: TokenIds, top: int, piece: int | None) -> None:
        self._model: Any = model
        self._tokens = torch.tensor(list(tokens), dtype=torch.long, device=model.device)
        self._top = top
        self._cache = DynamicCache() if piece is not None else None
        self._piece = len(tokens) if piece is None else max(1, min(piece, token_budget(model, logits=True)))
        self._read = 0
        self.logprobs: list[float] = []  # of all tokens but the first
        self.tops: list[Top] = []
        self.refused: RequestRefused | None = None

    @property
    def is_done(self) -> bool:
        return self.refused is not None or self._read >= len(self._tokens) - 1

    @torch.inference_mode()
    def advance(self) -> None:
        """Read the next piece, on the thread that uses the model."""
        end = min(self._read + self._piece, len(self._tokens) - 1)
        ids = self._tokens[self._read : end].unsqueeze(0)
        held = {"use_cache": False} if self._cache is None else {"use_cache": True, "past_key_values": self._cache}
        logits = self._model(input_ids=ids, attention_mask=torch.ones_like(self._tokens[:end]).unsqueeze(0), **held)
        self._add(logits.logits[0], self._tokens[self._read + 1 : end + 1])
        self._read = end

    def _add(self, logits: torch.Tensor, following: torch.Tensor) -> None:
        every = functional.log_softmax(logits, dim=-1, dtype=torch.float32)
        if not bool(logits.float().logsumexp(dim=-1).isfinite().all()):
            self.refused = not_finite("output for the prompt")
            return
        self.logprobs += every.gather(1, following.unsqueeze(1)).squeeze(1).tolist()
        best = every.topk(min(self._top, every.shape[1]), dim=-1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        self.tops += [tuple(zip(*each, strict=True)) for each in pairs]
