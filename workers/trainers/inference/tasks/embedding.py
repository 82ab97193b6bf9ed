"""Task embed: a vector for each record, or for each of its tokens."""

from collections.abc import Sequence

import numpy as np

from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Engine, Pooling, RequestRefused, TokenIds
from workers.trainers.inference.engine.refusing import not_finite
from workers.trainers.inference.rows import Answer, Array
from workers.trainers.inference.tasks.task import Interrupted
from workers.trainers.inference.tokens import TaskTokens

# What numpy holds; bfloat16, which it lacks, is made of float32 where tensors are written.
_HELD = {"float16": np.float16}


class Embedding:
    """The vectors are `Answer.vector`, not a column of its values: each format has its own form for them."""

    def __init__(self, engine: Engine, tokens: TaskTokens, dtype: str, pooling: Pooling) -> None:
        self._engine = engine
        self._tokens = tokens
        self._pooling = pooling
        self._dtype = _HELD.get(dtype, np.float32)

    def request(self, _index: int, record: Record) -> tuple[int, ...]:
        return tuple(self._tokens.whole(record))

    def answers(self, requests: Sequence[TokenIds], interrupted: Interrupted) -> list[Answer | RequestRefused]:
        found = self._engine.embeddings(requests, self._pooling, interrupted)
        return [self._answer(len(request), each) for request, each in zip(requests, found, strict=True)]

    def _answer(self, length: int, found: Array | RequestRefused) -> Answer | RequestRefused:
        if isinstance(found, RequestRefused):
            return found
        with np.errstate(over="ignore"):
            vector: Array = found.astype(self._dtype)
        if not np.isfinite(vector).all():
            return not_finite(f"embedding in {np.dtype(self._dtype).name}")
        return Answer(vector=vector, prompt_tokens=length)
