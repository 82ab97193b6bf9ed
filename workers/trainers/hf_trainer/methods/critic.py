"""The critic: a value head on the policy that predicts the return from each token."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

NAME = "value_head"


class Critic:
    """Part of the model as `value_head` until `detached`: trained, clipped and saved with it.

    Initially it predicts 0 for every token.
    """

    def __init__(self, model: nn.Module) -> None:
        base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
        self.head = nn.Linear(base.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(base.device)
        self._model = model
        self._backbone = base.base_model
        setattr(model, NAME, self.head)

    @contextmanager
    def capturing(self) -> Iterator[list[Tensor]]:
        """Capture the hidden states of the forward passes in the block, one of shape (records, tokens, width) per
        pass.
        """
        seen: list[Tensor] = []
        hook = self._backbone.register_forward_hook(lambda _module, _given, output: seen.append(output[0]))
        try:
            yield seen
        finally:
            hook.remove()

    def values(self, hidden: list[Tensor], completion_length: int) -> Tensor:
        """Values of the last tokens, each before it is generated; shape (records, completion_length)."""
        states = torch.cat(hidden)[:, -completion_length - 1 : -1]
        found: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(-1)
        return found

    def detached(self) -> None:
        """Remove the value head, so that the model has its original structure."""
        delattr(self._model, NAME)
