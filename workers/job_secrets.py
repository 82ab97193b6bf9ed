"""Secrets of a job on the node that runs it; only the processes that need them receive them."""

import importlib

from app.security.derived_tokens import derived_token
from config.settings import Settings
from workers.attempt_failed import AttemptFailed

NO_KEY = (
    "this node has no secret key, by which the processes of an attempt know each other: set "
    "TRAINYARD_SECURITY_SECRET_KEY to that of the API, and start its worker again"
)
JOB_SECRET = "TRAINYARD_JOB_SECRET"  # noqa: S105 – the name of a variable


def opened_secrets(settings: Settings, sealed: str) -> dict[str, str]:
    """The secrets by their dotted path in the job's document, and ``forwarded.…`` for the user's tokens."""
    if not sealed:
        return {}
    # Imported by name: cryptography takes 2 MB of every supervisor, and few jobs have secrets.
    box = importlib.import_module("app.security.secrets").SecretBox(settings.security.secret_key)
    return dict(box.open(sealed))


def attempt_secret(settings: Settings, *, job_id: str, attempt: int) -> str:
    """By which the ranks of an attempt know each other, on all of its nodes; empty where the node has no secret key."""
    if not settings.security.secret_key:
        return ""
    return derived_token(settings.security.secret_key, "attempt-secret-1", job_id, attempt)


def launch_secret(settings: Settings, *, job_id: str, attempt: int, fence: int) -> str:
    """By which the rank agents of an attempt know that a launcher is its own; ranks do not have it.

    Raises AttemptFailed where the node has no secret key: without one, everyone could compute it.
    """
    if not settings.security.secret_key:
        raise AttemptFailed("INTERNAL", NO_KEY)
    return derived_token(settings.security.secret_key, "launch-secret-1", job_id, attempt, fence)
