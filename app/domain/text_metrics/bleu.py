"""Corpus BLEU from counts of single completions, which can be added and resampled.

The figures are those of sacrebleu 2 (Post, 2018, "A Call for Clarity in Reporting BLEU Scores") with its defaults,
signature `case:mixed|eff:no|tok:13a|smooth:exp`.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from app.domain.text_metrics.rouge import ngrams

_ORDERS = 4
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_RULES = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
# Of one completion or the sum of many: its tokens, those of the closest answer, and for n-grams of each order how many
# are right and how many there are.
Counts = Sequence[float]
SIZE = 2 + 2 * _ORDERS


def counts(completion: str, accepted: Sequence[str]) -> tuple[int, ...]:
    """The counts of one completion, of which `bleu` takes sums."""
    tokens, wanted = tokens_of(completion), [tokens_of(each) for each in accepted]
    right, total = [], []
    for order in range(1, _ORDERS + 1):
        found, most = ngrams(tokens, order), Counter[tuple[str, ...]]()
        for each in wanted:
            most |= ngrams(each, order)
        right.append((found & most).total())
        total.append(found.total())
    return len(tokens), _closest(len(tokens), [len(each) for each in wanted]), *right, *total


def bleu(summed: Counts) -> float:
    """From 0 to 100; an order without a right n-gram counts as half, a quarter … of one."""
    length, wanted = summed[:2]
    right, total = summed[2 : 2 + _ORDERS], summed[2 + _ORDERS :]
    if not length or not any(right) or not all(total):
        return 0.0
    smoothing, logs = 1.0, 0.0
    for hits, of in zip(right, total, strict=True):
        smoothing = smoothing if hits else smoothing * 2
        logs += math.log(100 * (hits or 1 / smoothing) / of)
    brevity = math.exp(min(0.0, 1 - wanted / length))
    return brevity * math.exp(logs / _ORDERS)


def tokens_of(text: str) -> list[str]:
    """Tokenizer 13a, that of NIST's mteval-v13a."""
    line = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        line = line.replace(entity, character)
    line = f" {line} "
    for pattern, spaced in _RULES:
        line = pattern.sub(spaced, line)
    return line.split()


def _closest(length: int, lengths: Sequence[int]) -> int:
    """The shorter one of two that are equally close."""
    return min(lengths, key=lambda each: (abs(each - length), each))
