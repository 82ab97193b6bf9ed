"""Encryption of stored secrets: job secrets and signing keys."""

import hashlib
import hmac
import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from app.domain.errors import TrainyardError


class SecretKeyMissing(TrainyardError):
    """No usable secret key is configured, or a secret was encrypted with another one."""


class SecretBox:
    """Encrypts small JSON documents with the platform's secret key; encryption is randomized.

    ``fingerprint`` compares texts that contain secrets without storing them.
    """

    def __init__(self, key: str) -> None:
        try:
            self._fernet = Fernet(key)
            self._fingerprint_key = hashlib.sha256(b"fingerprint:" + key.encode()).digest()
        except ValueError as error:
            raise SecretKeyMissing(
                "TRAINYARD_SECURITY_SECRET_KEY is not a key (32 random bytes, url-safe base64); "
                "`trainyard db init` creates one in the data directory"
            ) from error

    def seal(self, document: dict[str, Any]) -> str:
        return self._fernet.encrypt(json.dumps(document).encode()).decode()

    def fingerprint(self, text: str) -> str:
        """A keyed hash of 64 hex digits, equal for equal texts; without the key it resists guessing."""
        return hmac.digest(self._fingerprint_key, text.encode(), "sha256").hex()

    def open(self, sealed: str) -> dict[str, Any]:
        """Decrypt a document; an empty text gives an empty one. Raises SecretKeyMissing if another key encrypted it."""
        if not sealed:
            return {}
        try:
            opened: dict[str, Any] = json.loads(self._fernet.decrypt(sealed.encode()))
        except InvalidToken as error:
            raise SecretKeyMissing("a stored secret was encrypted with another key than the configured one") from error
        return opened
