"""How well documents answer a query, by a sequence classifier with one label."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainers.inference.engine.interface import Pair, RequestRefused, Scores
from workers.trainers.inference.engine.refusing import not_finite
from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.problems import CONTEXT_LENGTH_EXCEEDED, AnswerProblem, refusal
from workers.trainers.inference.serving.openai.served_model import ServedModel

_DOCUMENTS = "documents"


def wanted_pairs(body: Mapping[str, Any], model: ServedModel) -> list[Pair]:
    """The query with each document. Raises AnswerProblem."""
    texts = [_text(each) for each in body[_DOCUMENTS]]
    pairs = [model.pair(str(body["query"]), text, body.get("max_tokens_per_doc"), _DOCUMENTS) for text in texts]
    for index, pair in enumerate(pairs):
        if len(pair.tokens) > model.context:
            raise AnswerProblem(
                f"the context holds {model.context} tokens, but the query and document {index} have "
                f"{len(pair.tokens)}; shorten it, or give max_tokens_per_doc",
                param=_DOCUMENTS,
                code=CONTEXT_LENGTH_EXCEEDED,
            )
    return pairs


def rerank_answer(
    body: Mapping[str, Any], pairs: Sequence[Pair], found: Sequence[Scores | RequestRefused], chance: Chance
) -> dict[str, Any]:
    """The best documents first, equal ones in their order. Raises AnswerProblem where the engine has refused one."""
    values = [_value(each) for each in found]
    best = sorted(range(len(values)), key=lambda index: (-values[index], index))[: body.get("top_n")]
    tokens = sum(len(each.tokens) for each in pairs)
    return {
        "id": f"rerank-{chance.id}",
        "model": body["model"],
        "results": [_result(body, index, values[index]) for index in best],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _result(body: Mapping[str, Any], index: int, value: float) -> dict[str, Any]:
    document = {"document": {"text": _text(body[_DOCUMENTS][index])}} if body.get("return_documents") else {}
    return {"index": index, "relevance_score": _share(value), **document}


def _value(found: Scores | RequestRefused) -> float:
    if isinstance(found, RequestRefused):
        raise refusal(found, _DOCUMENTS)
    if found.value is None or not math.isfinite(found.value):
        raise refusal(not_finite("score"), _DOCUMENTS)
    return found.value


def _share(value: float) -> float:
    """From 0 to 1: the sigmoid, which does not overflow this way."""
    return 0.5 * (1.0 + math.tanh(0.5 * value))


def _text(document: str | Mapping[str, Any]) -> str:
    return document if isinstance(document, str) else str(document["text"])
