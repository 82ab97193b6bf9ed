"""Secrets of a job on the node that runs it; only the processes that need them receive them."""

import hashlib
import hmac
import importlib

from config.settings import Settings

JOB_SECRET = "TRAINYARD_JOB_SECRET"  # noqa: S105 – the name of a variable


def opened_secrets(settings: Settings, sealed: str) -> dict[str, str]:
    """The secrets by their dotted path in the job's document, and ``forwarded.…`` for the user's tokens."""
    if not sealed:
        return {}
    # Imported by name: cryptography takes 2 MB of every supervisor, and few jobs have secrets.
    box = importlib.import_module("app.security.secrets").SecretBox(settings.security.secret_key)
    return dict(box.open(sealed))


def attempt_secret(settings: Settings, *, job_id: str, attempt: int) -> str:
    """By which the ranks of an attempt know each other, on all of its nodes; empty where the node has no secret key.

    It is stored nowhere: who has the installation's secret computes it.
    """
    if not settings.security.secret_key:
        return ""
    key = hashlib.sha256(f"attempt-secret-1:{settings.security.secret_key}".encode()).digest()
    return hmac.digest(key, f"{job_id}/{attempt}".encode(), "sha256").hex()
