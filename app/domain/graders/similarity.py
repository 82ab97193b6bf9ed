"""Metrics of text_similarity graders, each from 0 to 1."""

import math
from collections.abc import Callable, Mapping

from app.domain.text_metrics.bleu import tokens_of
from app.domain.text_metrics.rouge import ngrams, rouge_l, rouge_n

_ORDERS = range(1, 5)  # of n-grams, for BLEU and GLEU


def similarity(metric: str, text: str, reference: str) -> float:
    """``metric`` is one of `document.METRICS`, but not FUZZY_MATCH, which a library defines."""
    return _METRICS[metric](text, reference)


def _bleu(text: str, reference: str) -> float:
    """Sentence BLEU as sacrebleu 2 computes it: orders that are longer than the text don't count."""
    found, wanted = tokens_of(text), tokens_of(reference)
    smoothing, logs, orders = 1.0, 0.0, 0
    for order in _ORDERS:
        mine = ngrams(found, order)
        if not mine:
            break
        right = (mine & ngrams(wanted, order)).total()
        if order == 1 and not right:
            return 0.0
        smoothing = smoothing if right else smoothing * 2
        logs += math.log((right or 1 / smoothing) / mine.total())
        orders += 1
    return math.exp(min(0.0, 1 - len(wanted) / len(found)) + logs / orders) if orders else 0.0


def _gleu(text: str, reference: str) -> float:
    """Google's BLEU of sentences (Wu et al., 2016): the lower one of precision and recall of all n-grams."""
    found, wanted = tokens_of(text), tokens_of(reference)
    pairs = [(ngrams(found, order), ngrams(wanted, order)) for order in _ORDERS]
    right = sum((mine & theirs).total() for mine, theirs in pairs)
    most = max(sum(mine.total() for mine, _ in pairs), sum(theirs.total() for _, theirs in pairs))
    return right / most if most else 0.0


def _rouge(order: int) -> Callable[[str, str], float]:
    return lambda text, reference: rouge_n(text, reference, order)


_METRICS: Mapping[str, Callable[[str, str], float]] = {
    "bleu": _bleu,
    "gleu": _gleu,
    **{f"rouge_{order}": _rouge(order) for order in range(1, 6)},
    "rouge_l": lambda text, reference: rouge_l(text, [reference]),
}
