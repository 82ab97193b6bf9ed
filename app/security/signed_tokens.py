"""Signed tokens with an expiry, issued and verified by Trainyard only.

JSON Web Tokens (RFC 7519), signed with HMAC-SHA256 by a key derived from the installation's secret and the purpose.
"""

import hashlib
import time

import jwt

from app.domain.errors import CredentialsInvalid

_ALGORITHM = "HS256"


def issue(secret_key: str, purpose: str, subject: str, *, seconds: int) -> str:
    """Issue a token for the subject, valid for this purpose only."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    return jwt.encode(claims, _secret(secret_key, purpose), algorithm=_ALGORITHM)


def subject_of(secret_key: str, purpose: str, token: str) -> str:
    """The subject of a token. Raises CredentialsInvalid for a forged or expired one, or one for another purpose."""
    try:
        claims = jwt.decode(
            token, _secret(secret_key, purpose), algorithms=[_ALGORITHM], options={"require": ["sub", "exp"]}
        )
    except jwt.InvalidTokenError as error:
        raise CredentialsInvalid("the token is invalid or expired; request a new one") from error
    return str(claims["sub"])


def seconds_left(token: str) -> int:
    """Of a token that was verified."""
    return int(jwt.decode(token, options={"verify_signature": False})["exp"]) - int(time.time())


def _secret(secret_key: str, purpose: str) -> bytes:
    return hashlib.sha256(f"{purpose}-token-1:{secret_key}".encode()).digest()
