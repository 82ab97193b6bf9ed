"""Tokens and secrets that are stored nowhere: who has the installation's secret key computes them."""

import hashlib
import hmac


def derived_token(secret_key: str, use: str, *of: object) -> str:
    """64 hexadecimal digits. ``use`` keeps tokens of one kind apart from all others; ``of``: whose it is."""
    key = hashlib.sha256(f"{use}:{secret_key}".encode()).digest()
    return hmac.digest(key, "/".join(map(str, of)).encode(), "sha256").hex()
