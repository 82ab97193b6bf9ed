"""What projects and queues may be called, what nodes are labelled, and which word was probably meant."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

# Names become part of broker queue names and paths, where other characters have a meaning.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_RULE = "use 1 to 63 lower-case letters, digits and dashes, no dash at either end"

DEFAULT_PROJECT = "default"

# Labels and capabilities of nodes, as nodes offer and jobs require them.
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}")
WORD_RULE = "must be 1 to 128 of letters, digits and ._/:-, beginning with a letter or digit"

# A label constraint of a job: one label, or several alternatives.
EITHER = "|"
LABEL_CONSTRAINT = re.compile(rf"{WORD.pattern}(?:\|{WORD.pattern}){{0,15}}")
LABEL_CONSTRAINT_RULE = (
    "must be 1 to 16 labels with | between them, each 1 to 128 of letters, digits and ._/:-, no punctuation first"
)

# What other tools call a value of ours.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "huggingface": ("hub", "HF_TRAINER"),
    "hugging_face": ("hub", "HF_TRAINER"),
    "huggingface_hub": ("hub",),
    "transformers": ("HF_TRAINER",),
    "trl": ("HF_TRAINER",),
    "gpu": ("cuda",),
    "nvidia": ("cuda",),
    "bf16": ("bfloat16",),
    "fp16": ("float16",),
    "half": ("float16",),
    "fp32": ("float32",),
    "full": ("FULL_FINETUNE",),
}
_LONGEST_WORD, _NEAR = 64, 0.75


def did_you_mean(given: str, accepted: Collection[str]) -> str:
    """The end of a sentence that lists the accepted words, with the one that is probably meant; empty without any."""
    folded = _folded(given)
    meant = [word for word in accepted if _folded(word) == folded]
    meant += [word for word in accepted if word in _ALIASES.get(folded, ())]
    if not meant:
        by_folded = {_folded(word): word for word in accepted}
        meant = [by_folded[word] for word in get_close_matches(folded, by_folded, n=1, cutoff=_NEAR)]
    return f" (did you mean {meant[0]}?)" if meant else ""


def _folded(word: str) -> str:
    return word[:_LONGEST_WORD].lower().replace("-", "_")
