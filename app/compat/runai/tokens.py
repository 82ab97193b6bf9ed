"""Tokens for clients that exchange a pair for one: signed, good for a while, and no longer than the key itself.

JSON Web Tokens (RFC 7519), signed with HMAC-SHA256 by a key derived from the installation's secret.
"""

import hashlib
import time

import jwt

from app.domain.errors import CredentialsInvalid
from app.http.context import backend

LIFETIME_SECONDS = 3600
_ALGORITHM = "HS256"


def token_for(key_id: str) -> str:
    """One that authenticates as this key."""
    now = int(time.time())
    return jwt.encode({"sub": key_id, "iat": now, "exp": now + LIFETIME_SECONDS}, _secret(), algorithm=_ALGORITHM)


def is_token(presented: str) -> bool:
    """Whether it has the form of a token, good or not; keys have no dots."""
    return presented.count(".") == 2


def key_of(token: str) -> str:
    """The id of its key. Raises CredentialsInvalid for one that is not ours or has expired."""
    try:
        claims = jwt.decode(token, _secret(), algorithms=[_ALGORITHM], options={"require": ["sub", "exp"]})
    except jwt.InvalidTokenError as error:
        raise CredentialsInvalid("the token is not one of ours, or has expired; ask for a new one") from error
    return str(claims["sub"])


def _secret() -> bytes:
    return hashlib.sha256(b"runai-token-1:" + backend().settings.security.secret_key.encode()).digest()
