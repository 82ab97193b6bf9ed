"""The metric fuzzy_match of graders, as rapidfuzz defines it."""

from rapidfuzz import fuzz, utils

_LONGEST_SEARCHED = 1000  # characters
_TOKENS_WEIGH = 0.95  # as in WRatio


def fuzzy_match(text: str, reference: str) -> float:
    """From 0 to 1; case, and what is no letter or digit, does not count.

    Equal texts are alike, also those without letters, of which rapidfuzz says 0. Others are compared by WRatio, but two
    long ones without the search for the shorter one within the longer, which takes minutes.
    """
    if text == reference:
        return 1.0
    text, reference = utils.default_process(text), utils.default_process(reference)
    if min(len(text), len(reference)) <= _LONGEST_SEARCHED:
        return fuzz.WRatio(text, reference) / 100
    return max(fuzz.ratio(text, reference), fuzz.token_ratio(text, reference) * _TOKENS_WEIGH) / 100
