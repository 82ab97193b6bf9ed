"""Tokens that stand for an API key for a while: Run:ai's clients ask for one with the pair of an application.

They are as good as the key itself, and refused as soon as the key is.
"""

from app.security import signed_tokens

_PURPOSE = "runai"
_DOTS = 2


def issue(secret_key: str, key_id: str, *, seconds: int) -> str:
    return signed_tokens.issue(secret_key, _PURPOSE, key_id, seconds=seconds)


def has_form(presented: str) -> bool:
    """Whether it may be a token, valid or not; keys have no dots."""
    return presented.count(".") == _DOTS


def key_of(secret_key: str, token: str) -> str:
    """The id of the token's key. Raises CredentialsInvalid for an invalid or expired token."""
    return signed_tokens.subject_of(secret_key, _PURPOSE, token)
