"""The secrets that settings hold: passwords, keys, and passwords in URLs."""

from collections.abc import Iterator
from dataclasses import fields
from urllib.parse import unquote

from config.settings import Settings

SECRET_NAMES = ("password", "secret", "secret_key")  # endings of the names of settings that hold one


def secrets_of(settings: Settings) -> list[str]:
    """Every secret value of the settings, to be masked in logs."""
    return [secret for concern in fields(settings) for secret in _secrets_in(getattr(settings, concern.name))]


def _secrets_in(part: object) -> Iterator[str]:
    for name, value in vars(part).items():
        if not isinstance(value, str):
            continue
        if name.endswith(SECRET_NAMES):
            yield value
        user, at, _ = value.partition("://")[2].rpartition("@")
        if at and "/" not in user.partition(":")[0]:
            password = user.partition(":")[2] or user
            yield from (password, unquote(password))
