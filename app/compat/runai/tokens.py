"""Tokens for clients that exchange a pair for one: good for a while, and no longer than the key itself."""

from app.http.context import backend
from app.security import signed_tokens

LIFETIME_SECONDS = 3600
_PURPOSE = "runai"


def token_for(key_id: str) -> str:
    """One that authenticates as this key."""
    return signed_tokens.issue(_secret_key(), _PURPOSE, key_id, seconds=LIFETIME_SECONDS)


def is_token(presented: str) -> bool:
    """Whether it has the form of a token, good or not; keys have no dots."""
    return presented.count(".") == 2


def key_of(token: str) -> str:
    """The id of its key. Raises CredentialsInvalid for one that is not ours or has expired."""
    return signed_tokens.subject_of(_secret_key(), _PURPOSE, token)


def _secret_key() -> str:
    return backend().settings.security.secret_key
