"""The wrong value in an error message: bounded, and nothing of a secret."""

import json

from app.domain.spec.secrets import is_secret, unsigned

_LONGEST = 100
# Fields that hold secrets under other names; everything below them does, too.
_SECRET_FIELDS = frozenset({"environment", "environments", "credentials", "content", "headers"})
_OF_NUMBERS = ("tokens", "key_value")  # in names that only sound as if they held a secret
_KINDS = ((bool, "true or false"), (str, "a string"), (int | float, "a number"), (list, "a list"), (dict, "an object"))


def quoted(value: object, *, field: str = "") -> str:
    """The value as a message quotes it; empty for lists and objects, and for what may be a secret."""
    if isinstance(value, list | dict) or _holds_secret(value, field):
        return ""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    return json.dumps(value, default=str)[:_LONGEST]


def kind_of(value: object) -> str:
    """The JSON type of a value, in words."""
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


def _holds_secret(value: object, field: str) -> bool:
    parts = field.split(".")
    if _SECRET_FIELDS.intersection(parts) or any(is_secret(_as_meant(part)) for part in parts):
        return True
    return isinstance(value, str) and (is_secret("", value) or _is_signed(value))


def _is_signed(text: str) -> bool:
    url = f"https://host/?{text.partition('?')[2]}"  # also of what is no URL, such as a mistyped one
    return unsigned(url) != url


def _as_meant(name: str) -> str:
    for harmless in _OF_NUMBERS:
        name = name.replace(harmless, "")
    return name
