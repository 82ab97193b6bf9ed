"""Decrypts a job's secrets on the node that runs it; only the processes that need them receive them."""

import importlib

from config.settings import Settings


def opened_secrets(settings: Settings, sealed: str) -> dict[str, str]:
    """The secrets by their dotted path in the job's document, and ``forwarded.…`` for the user's tokens."""
    if not sealed:
        return {}
    # Imported by name: cryptography takes 2 MB of every supervisor, and few jobs have secrets.
    box = importlib.import_module("app.security.secrets").SecretBox(settings.security.secret_key)
    return dict(box.open(sealed))
