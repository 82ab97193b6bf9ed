"""Encryption of what must be stored but never shown: job secrets and signing keys."""

import hashlib
import hmac
import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from app.domain.errors import TrainyardError


class SecretKeyMissing(TrainyardError):
    """No usable key is configured; nothing secret can be stored or read."""


class SecretBox:
    """Seals small JSON documents with the platform's secret key. Sealing the same twice gives different texts.

    ``fingerprint`` tells whether two texts with secrets in them are the same, without keeping them.
    """

    def __init__(self, key: str) -> None:
        try:
            self._fernet = Fernet(key)
            self._fingerprint_key = hashlib.sha256(b"fingerprint:" + key.encode()).digest()
        except ValueError as error:
            raise SecretKeyMissing(
                "TRAINYARD_SECURITY_SECRET_KEY is not a key (32 random bytes, url-safe base64); "
                "`trainyard db init` makes one in the data directory"
            ) from error

    def seal(self, document: dict[str, Any]) -> str:
        return self._fernet.encrypt(json.dumps(document).encode()).decode()

    def fingerprint(self, text: str) -> str:
        """64 hex digits that are the same for the same text; without the key nobody can try what the text may be."""
        return hmac.digest(self._fingerprint_key, text.encode(), "sha256").hex()

    def open(self, sealed: str) -> dict[str, Any]:
        """What ``seal`` was given; an empty text opens to nothing. Raises SecretKeyMissing for another key's work."""
        if not sealed:
            return {}
        try:
            opened: dict[str, Any] = json.loads(self._fernet.decrypt(sealed.encode()))
        except InvalidToken as error:
            raise SecretKeyMissing("a stored secret was sealed with another key than the configured one") from error
        return opened
