"""Tokens that stand for something for a while: signed, and read by nobody but us.

JSON Web Tokens (RFC 7519), signed with HMAC-SHA256 by a key derived from the installation's secret and the purpose.
"""

import hashlib
import time

import jwt

from app.domain.errors import CredentialsInvalid

_ALGORITHM = "HS256"


def issue(secret_key: str, purpose: str, subject: str, *, seconds: int) -> str:
    """One that stands for the subject, for this purpose alone."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    return jwt.encode(claims, _secret(secret_key, purpose), algorithm=_ALGORITHM)


def subject_of(secret_key: str, purpose: str, token: str) -> str:
    """Raises CredentialsInvalid for one that is not ours, is for something else, or has expired."""
    try:
        claims = jwt.decode(
            token, _secret(secret_key, purpose), algorithms=[_ALGORITHM], options={"require": ["sub", "exp"]}
        )
    except jwt.InvalidTokenError as error:
        raise CredentialsInvalid("the token is not one of ours, or has expired; ask for a new one") from error
    return str(claims["sub"])


def _secret(secret_key: str, purpose: str) -> bytes:
    return hashlib.sha256(f"{purpose}-token-1:{secret_key}".encode()).digest()
