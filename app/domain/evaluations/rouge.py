"""ROUGE-L of a completion: how long the longest common subsequence of words with an accepted answer is."""

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


def rouge_l(completion: str, accepted: Sequence[str]) -> float:
    """The best F-measure, with equal weights, over the accepted answers.

    For English text as Google's `rouge_score` without stemming, which leaves out all letters but a to z.
    """
    words = _words(completion)
    return max(_f_measure(words, _words(each)) for each in accepted)


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


def _f_measure(words: Sequence[str], wanted: Sequence[str]) -> float:
    common = longest_common_subsequence(words, wanted)
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
