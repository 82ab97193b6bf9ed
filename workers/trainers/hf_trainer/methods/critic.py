"""A head on the policy that says of each token what is still to come: the critic of actor and critic in one model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

NAME = "value_head"


class Critic:
    """Is a part of the model, `value_head`, from when it is made until `taken_off`: trained, clipped and saved with it.

    At the start it says 0 of every token.
    """

    def __init__(self, model: Any) -> None:
        base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
        self.head = nn.Linear(base.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(base.device)
        self._model = model
        self._backbone = base.base_model
        setattr(model, NAME, self.head)

    @contextmanager
    def watching(self) -> Iterator[list[Tensor]]:
        """Hidden states of what the model reads meanwhile, one of shape (records, tokens, width) for each pass."""
        seen: list[Tensor] = []
        hook = self._backbone.register_forward_hook(lambda _module, _given, output: seen.append(output[0]))
        try:
            yield seen
        finally:
            hook.remove()

    def values(self, hidden: list[Tensor], completion_length: int) -> Tensor:
        """Of the last tokens, each as it was before it was written; shape (records, completion_length)."""
        states = torch.cat(hidden)[:, -completion_length - 1 : -1]
        found: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(-1)
        return found

    def taken_off(self) -> None:
        """Leave the model as others know it."""
        delattr(self._model, NAME)
