"""Tokens for clients that authenticate with an access key and secret key; valid as long as the key, for an hour."""

from app.http.context import backend
from app.security import signed_tokens

LIFETIME_SECONDS = 3600
_PURPOSE = "runai"


def token_for(key_id: str) -> str:
    """A token that authenticates as this key."""
    return signed_tokens.issue(_secret_key(), _PURPOSE, key_id, seconds=LIFETIME_SECONDS)


def is_token(presented: str) -> bool:
    """Whether it has the form of a token, valid or not; keys have no dots."""
    return presented.count(".") == 2


def key_of(token: str) -> str:
    """The id of the token's key. Raises CredentialsInvalid for an invalid or expired token."""
    return signed_tokens.subject_of(_secret_key(), _PURPOSE, token)


def _secret_key() -> str:
    return backend().settings.security.secret_key
