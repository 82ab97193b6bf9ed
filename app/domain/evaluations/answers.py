"""Scores of one completion against its accepted answers: equality, words in common, containment, valid JSON."""

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


def squad(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, words separated by one space.

    As `normalize_answer` of SQuAD's evaluation script.
    """
    kept = "".join(each for each in text.lower() if each not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", kept).split())


NORMALIZE: Mapping[str, Callable[[str], str]] = {"none": str, "strip": str.strip, "squad": squad}


def exact_match(completion: str, accepted: Sequence[str], normalize: str) -> float:
    """1 where the completion equals an accepted answer, else 0."""
    normalized = NORMALIZE[normalize]
    return float(normalized(completion) in {normalized(each) for each in accepted})


def contains(completion: str, accepted: Sequence[str], normalize: str) -> float:
    """1 where an accepted answer is part of the completion, else 0; an answer without characters is in none."""
    normalized = NORMALIZE[normalize]
    whole = normalized(completion)
    return float(any(part in whole for part in map(normalized, accepted) if part))


def f1(completion: str, accepted: Sequence[str], normalize: str) -> float:
    """The best F1 of words with an accepted answer, as SQuAD's: without words on one side, 1 if the other has none."""
    normalized = NORMALIZE[normalize]
    words = normalized(completion).split()
    return max(_f1(words, normalized(each).split()) for each in accepted)


def json_valid(completion: str, *, object_only: bool = False) -> float:
    """1 where the completion is one JSON value, or one object; NaN and Infinity are no JSON."""
    try:
        value = json.loads(completion, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return 0.0
    return float(isinstance(value, dict) or not object_only)


def _f1(words: Sequence[str], wanted: Sequence[str]) -> float:
    if not words or not wanted:
        return float(words == wanted)
    common = (Counter(words) & Counter(wanted)).total()
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
