"""Numbers of reward models, and probabilities of labels."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from workers.trainers.inference.engine.batches import answered, padded, token_budget
from workers.trainers.inference.engine.interface import Pair, Scores, TokenIds

_SEGMENTS = "token_type_ids"
_SEVERAL = "multi_label_classification"  # config.problem_type: each label by itself


class Classification:
    """Computes scores in padded batches."""

    def __init__(self, model: PreTrainedModel, padding: int) -> None:
        self._model: Any = model
        self._padding = padding
        self._budget = token_budget(model, logits=False)

    def __call__(self, texts: Sequence[TokenIds], interrupted: Callable[[], bool]) -> list[Scores]:
        return answered(texts, self._budget, lambda group: self._batch([texts[index] for index in group]), interrupted)

    def pairs(self, pairs: Sequence[Pair], interrupted: Callable[[], bool]) -> list[Scores]:
        """As texts, with their segments for models that read them."""
        reads = _SEGMENTS in inspect.signature(self._model.forward).parameters
        segments = [each.segments for each in pairs if reads and each.segments is not None]
        if len(segments) < len(pairs):
            return self([each.tokens for each in pairs], interrupted)

        def batch(group: list[int]) -> list[Scores]:
            given, _ = padded([segments[index] for index in group], 0, self._model.device)
            return self._batch([pairs[index].tokens for index in group], **{_SEGMENTS: given})

        return answered([each.tokens for each in pairs], self._budget, batch, interrupted)

    def _batch(self, texts: Sequence[TokenIds], **segments: torch.Tensor) -> list[Scores]:
        ids, mask = padded(texts, self._padding, self._model.device)
        logits = self._model(input_ids=ids, attention_mask=mask, **segments).logits.float()
        return [self._scores(row) for row in logits.cpu()]

    def _scores(self, logits: torch.Tensor) -> Scores:
        config = self._model.config
        if len(logits) == 1:
            return Scores(value=float(logits[0]))
        several = config.problem_type == _SEVERAL
        probabilities = (logits.sigmoid() if several else logits.softmax(dim=-1)).tolist()
        labels = [config.id2label[index] for index in range(len(probabilities))]
        return Scores(label=labels[int(logits.argmax())], probabilities=dict(zip(labels, probabilities, strict=True)))
