"""The metric fuzzy_match of graders, as rapidfuzz defines it."""

from rapidfuzz import fuzz, utils

_LONGEST_SEARCHED = 1000  # characters
_TOKENS_WEIGH = 0.95  # as in WRatio


def fuzzy_match(text: str, reference: str) -> float:
    """From 0 to 1; case, and what is no letter or digit, does not count.

    WRatio, but of two long texts without the search for the shorter one within the longer, which takes minutes.
    """
    text, reference = utils.default_process(text), utils.default_process(reference)
    if min(len(text), len(reference)) <= _LONGEST_SEARCHED:
        return fuzz.WRatio(text, reference) / 100
    return max(fuzz.ratio(text, reference), fuzz.token_ratio(text, reference) * _TOKENS_WEIGH) / 100
