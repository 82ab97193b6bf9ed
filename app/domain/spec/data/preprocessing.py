"""``data_config.preprocess``: tokenizer options and field mapping."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.inference import EMBED, GENERATE, LOGLIKELIHOOD, REQUESTS

PADDINGS = ("longest", "max_length")
SIDES = ("left", "right")
LONGEST_TOKEN = 255
MOST_TOKENS = 1000
LONGEST_SEQUENCE = 2**24

# Kinds of records, and the columns that they may have.
EXAMPLES, TEXTS, PREFERENCES, PROMPTS = "examples", "texts", "preferences", "prompts"
MEASURED, PASSAGES = "measured texts", "passages"  # of inference: likelihoods, embeddings
REQUEST_LINES = "requests"  # of inference: read as they are
COLUMNS = {
    EXAMPLES: ("messages", "prompt", "completion", "text"),
    TEXTS: ("text",),
    PREFERENCES: ("prompt", "chosen", "rejected"),
    PROMPTS: ("messages", "prompt"),
    MEASURED: ("prompt", "completion", "text"),
    PASSAGES: ("text", "prompt"),
    REQUEST_LINES: (),
}
_ALL_COLUMNS = tuple(dict.fromkeys(name for names in COLUMNS.values() for name in names))
_RECORDS = {
    "CONTINUED_PRETRAIN": TEXTS,
    "DPO": PREFERENCES,
    "RLHF": PROMPTS,
    REWARD_METHOD: PREFERENCES,
    GENERATE: PROMPTS,
    LOGLIKELIHOOD: MEASURED,
    EMBED: PASSAGES,
    REQUESTS: REQUEST_LINES,
}
MESSAGE_KEYS = ("messages.role", "messages.content")
ROLE_PREFIX = "roles."
ROLES = ("system", "user", "assistant", "tool")


class BadPreprocessing(ValueError):
    """An invalid option; ``part`` is its dotted path below ``preprocess``, the message says why."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def check_tokenizer_config(changes: Mapping[str, Any]) -> None:
    """Raise BadPreprocessing for an unknown key or an invalid value."""
    for name, value in changes.items():
        part = f"tokenizer_config.{name}"
        if name not in _TOKENIZER:
            raise BadPreprocessing(part, f"unknown key {name!r}; known: {', '.join(_TOKENIZER)}")
        fits, expected = _TOKENIZER[name]
        if not fits(value):
            raise BadPreprocessing(part, f"{name} must be {expected}")


def records_of(method: str) -> str:
    """Kind of records of a built-in trainer, by rlhf.method_of, or of an inference task, by its type."""
    return _RECORDS.get(method, EXAMPLES)


def check_field_mapping(mapping: Mapping[str, str], *, records: str) -> None:
    """Raise BadPreprocessing for a target that no record of this kind has."""
    check_targets(mapping, COLUMNS[records], chats=records != TEXTS)


def check_targets(mapping: Mapping[str, str], columns: tuple[str, ...], *, chats: bool) -> None:
    """Raise BadPreprocessing for a target that is none of the columns, nor, with ``chats``, a part of a message."""
    known = (*columns, *MESSAGE_KEYS) if chats else columns
    for target, value in mapping.items():
        part = f"field_mapping.{target}"
        if chats and target.startswith(ROLE_PREFIX) and len(target) > len(ROLE_PREFIX):
            if value not in ROLES:
                raise BadPreprocessing(part, f"a role becomes one of {', '.join(ROLES)}")
        elif target not in known:
            listed = ", ".join(known) + (f", {ROLE_PREFIX}<name of a role in the data>" if chats else "")
            raise BadPreprocessing(part, f"nothing is called {target[:64]!r}; what a column can be mapped to: {listed}")
        elif not value:
            raise BadPreprocessing(part, "name the column, or leave it out")


def mapped_columns(mapping: Mapping[str, str]) -> dict[str, str]:
    """Only the entries that name a column of the data, not a key within a message or a role."""
    return {target: column for target, column in mapping.items() if target in _ALL_COLUMNS}


def known_targets() -> str:
    names = ", ".join((*_ALL_COLUMNS, *MESSAGE_KEYS))
    return f"{names}, {ROLE_PREFIX}<name of a role in the data> (which becomes {', '.join(ROLES)})"


def key_cache() -> str:
    return ", ".join(f"{name} ({expected})" for name, (_, expected) in _TOKENIZER.items())


def _is_side(value: object) -> bool:
    return value in SIDES if isinstance(value, str) else False


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST_SEQUENCE


def _is_token(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_TOKEN


def _are_tokens(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_TOKENS and all(_is_token(each) for each in value)


_A_SIDE = (_is_side, " or ".join(SIDES))
_A_TOKEN = (_is_token, f"a token of 1 to {LONGEST_TOKEN} characters")
# Key → (test of its value, the values in words).
_TOKENIZER: dict[str, tuple[Callable[[object], bool], str]] = {
    "padding_side": _A_SIDE,
    "truncation_side": _A_SIDE,
    "model_max_length": (_is_length, f"a whole number of tokens from 1 to {LONGEST_SEQUENCE}"),
    "pad_token": _A_TOKEN,
    "eos_token": _A_TOKEN,
    "bos_token": _A_TOKEN,
    "unk_token": _A_TOKEN,
    "additional_special_tokens": (_are_tokens, f"a list of at most {MOST_TOKENS} tokens"),
}
