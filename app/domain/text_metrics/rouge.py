"""ROUGE of a completion: how many words, or sequences of words, it shares with an accepted answer."""

import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


def rouge_l(completion: str, accepted: Sequence[str]) -> float:
    """The best F-measure, with equal weights, over the accepted answers.

    For English text as Google's `rouge_score` without stemming, which leaves out all letters but a to z.
    """
    words = _words(completion)
    return max(_longest(words, _words(each)) for each in accepted)


def rouge_n(completion: str, answer: str, order: int) -> float:
    """The F-measure, with equal weights, of the n-grams of this order."""
    found, wanted = (ngrams(_words(text), order) for text in (completion, answer))
    return _f_measure((found & wanted).total(), found.total(), wanted.total())


def ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def longest_common_subsequence(some: Sequence[str], others: Sequence[str]) -> int:
    """Its length, by Hyyrö's bit-parallel algorithm: one addition of whole numbers for each of ``others``."""
    places: dict[str, int] = {}
    for place, each in enumerate(some):
        places[each] = places.get(each, 0) | 1 << place
    mask = (1 << len(some)) - 1
    free = mask
    for each in others:
        found = free & places.get(each, 0)
        free = ((free + found) | (free - found)) & mask
    return len(some) - free.bit_count()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("_", " "))


def _longest(words: Sequence[str], wanted: Sequence[str]) -> float:
    return _f_measure(longest_common_subsequence(words, wanted), len(words), len(wanted))


def _f_measure(common: int, found: int, wanted: int) -> float:
    if not common:
        return 0.0
    precision, recall = common / found, common / wanted
    return 2 * precision * recall / (precision + recall)
