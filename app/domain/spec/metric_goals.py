"""Whether less or more of a metric is better, by its name."""

import re
from typing import Literal

Goal = Literal["minimize", "maximize"]

_SMALLER = re.compile(r"loss|perplexity|ppl|error|err|wer|cer|mae|mse|rmse|nll")
_LARGER = re.compile(r"accuracy|accuracies|acc|rewards?|margins?|f1|auc|bleu|rouge\w*|precision|recall|score")
_WORD = re.compile(r"[/._-]")
# Words that make another metric of what comes before them: a spread.
_OTHER = frozenset({"std", "var", "min", "max", "scale"})
_REJECTED = "rejected"


def goal_of(metric: str) -> Goal | None:
    """Minimize for losses and errors, maximize for accuracies and rewards; None where the name does not say."""
    words = _WORD.split(metric.lower())
    if _OTHER & set(words) or _REJECTED in words:
        return None
    if any(_SMALLER.fullmatch(word) for word in words) or metric.endswith("completions_cut"):
        return "minimize"
    return "maximize" if any(_LARGER.fullmatch(word) for word in words) else None
