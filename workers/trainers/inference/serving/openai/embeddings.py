"""Embeddings of texts or of tokens."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workers.trainers.inference.engine.embedding import Vector
from workers.trainers.inference.engine.interface import RequestRefused, TokenIds
from workers.trainers.inference.serving.openai.completions import texts_or_tokens
from workers.trainers.inference.serving.openai.problems import AnswerProblem, refusal
from workers.trainers.inference.serving.openai.served_model import ServedModel

_INPUT = "input"


def wanted_texts(body: Mapping[str, Any], model: ServedModel) -> list[TokenIds]:
    """The tokens of each text. Raises AnswerProblem."""
    found: list[TokenIds] = [
        model.text(each, _INPUT) if isinstance(each, str) else tuple(each) for each in texts_or_tokens(body[_INPUT])
    ]
    if longest := max((len(each) for each in found if len(each) > model.context), default=0):
        raise AnswerProblem(
            f"the context holds {model.context} tokens, but a text has {longest}; shorten it",
            param=_INPUT,
            code="context_length_exceeded",
        )
    return found


def embeddings_answer(
    body: Mapping[str, Any], texts: Sequence[TokenIds], vectors: Sequence[Vector | RequestRefused]
) -> dict[str, Any]:
    """Raises AnswerProblem where the engine has refused a text."""
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(body, _accepted(vector))}
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(map(len, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _accepted(vector: Vector | RequestRefused) -> Vector:
    if isinstance(vector, RequestRefused):
        raise refusal(vector, _INPUT)
    return vector


def _encoded(body: Mapping[str, Any], vector: Vector) -> str | list[float]:
    vector = _cut(vector, body.get("dimensions"))
    if body.get("encoding_format") == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    found: list[float] = vector.tolist()
    return found


def _cut(vector: Vector, dimensions: int | None) -> Vector:
    """The first so many numbers, normalized."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise AnswerProblem(
            f"dimensions is {dimensions}, but the model's vectors have {len(vector)}", param="dimensions"
        )
    cut = vector[:dimensions]
    length = float(np.linalg.norm(cut))
    return cut / np.float32(length) if length else cut
