"""Tokens for clients that authenticate with an access key and secret key; valid as long as the key, for an hour."""

from app.http.context import backend
from app.security import application_tokens

LIFETIME_SECONDS = 3600


def token_for(key_id: str) -> str:
    """A token that authenticates as this key."""
    return application_tokens.issue(_secret_key(), key_id, seconds=LIFETIME_SECONDS)


def is_token(presented: str) -> bool:
    """Whether it has the form of a token, valid or not; keys have no dots."""
    return application_tokens.has_form(presented)


def key_of(token: str) -> str:
    """The id of the token's key. Raises CredentialsInvalid for an invalid or expired token."""
    return application_tokens.key_of(_secret_key(), token)


def _secret_key() -> str:
    return backend().settings.security.secret_key
