"""ID tokens of an identity provider (OpenID Connect Core 1.0, section 3.1.3.7)."""

from collections.abc import Mapping
from typing import Any

import jwt

from app.domain.errors import CredentialsInvalid

# Signatures by keys that only the provider has: with HS256, or none, others could sign as well.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_LEEWAY_SECONDS = 60


def claims_of(token: str, keys: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str) -> dict[str, Any]:
    """The claims of a token for this client and this sign-in; ``keys`` is the provider's JWK set.

    Raises CredentialsInvalid for a token that is forged, expired, of another provider, client or sign-in.
    """
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            _key_of(token, keys),
            algorithms=_ALGORITHMS,
            issuer=issuer,
            audience=client_id,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )
    except jwt.PyJWTError as error:
        raise CredentialsInvalid(f"the provider's ID token is not accepted: {error}") from error
    if claims.get("nonce") != nonce:
        raise CredentialsInvalid("the provider's ID token is of another sign-in; sign in again")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if (several or "azp" in claims) and claims.get("azp") != client_id:
        raise CredentialsInvalid("the provider's ID token was issued to another client")
    return claims


def _key_of(token: str, keys: Mapping[str, Any]) -> jwt.PyJWK:
    """The key that the token names, or the only one. Raises PyJWTError."""
    usable = [key for key in jwt.PyJWKSet.from_dict(dict(keys)).keys if key.public_key_use in (None, "sig")]
    wanted = jwt.get_unverified_header(token).get("kid")
    found = [key for key in usable if wanted is None or key.key_id == wanted]
    if len(found) != 1:
        raise jwt.PyJWTError(f"the provider has {len(found)} keys for it")
    return found[0]
