"""Validation rules for setting values; each raises ValueError with what it expected."""

import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

Rule = Callable[[Any], None]

# The maximum delay after a lost wake-up: every receiver of wake-ups also polls.
LONGEST_POLL_SECONDS = 2.0
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# Names appear in URLs, file names, queue names and, after an @, in Celery's worker names.
HOST_NETWORK = "host"
_LEAST_USER, _MOST_USER = 1000, 2**32 - 3  # below are users of the system; the last two stand for no user
_NOBODY = (65534, 65535)  # the user whom the kernel shows in place of others, and no user in 16 bits
_ISOLATION = ("sandbox:namespaces", "sandbox:full", "sandbox:uid", "sandbox:locked")
_NODE_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,63}")


def positive_seconds(value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError("expected a number of seconds above 0")


def poll_seconds(value: float) -> None:
    if not 0 < value <= LONGEST_POLL_SECONDS:
        raise ValueError(f"expected more than 0 and at most {LONGEST_POLL_SECONDS:g} seconds")


def port(value: int) -> None:
    if not 0 <= value <= 65535:
        raise ValueError("expected a port from 0 to 65535")


def at_least_one(value: float) -> None:
    if not (math.isfinite(value) and value >= 1):
        raise ValueError("expected a number from 1")


def up_to(most: int) -> Rule:
    """Whole numbers from 1 to ``most``."""

    def check(value: int) -> None:
        if not 1 <= value <= most:
            raise ValueError(f"expected a number from 1 to {most}")

    return check


def finite(value: float) -> None:
    if not math.isfinite(value):
        raise ValueError("expected a number that is finite")


def not_negative(value: int) -> None:
    if value < 0:
        raise ValueError("expected a number from 0")


def automatic_or_not_negative(value: int) -> None:
    if value < -1:
        raise ValueError("expected a number of at least 0, or -1")


def rate(value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("expected a number from 0")


def http_url(value: str) -> None:
    """Empty means none."""
    parts = urlsplit(value)
    more = parts.username or parts.password or parts.query or parts.fragment
    if value and (parts.scheme not in ("http", "https") or not parts.hostname or more):
        raise ValueError("expected a URL like https://host/path, with nothing else in it")


def redis_url(value: str) -> None:
    """What Redis' client takes; empty means none."""
    expected = "expected a URL like redis://host:6379/0, rediss://… or unix://…, with a port up to 65535"
    try:
        parts = urlsplit(value)
        _ = parts.port  # raises ValueError if it is none
    except ValueError as error:
        raise ValueError(expected) from error
    if value and parts.scheme not in ("redis", "rediss", "unix"):
        raise ValueError(expected)


def host_url(value: str) -> None:
    """Empty means none."""
    http_url(value)
    if urlsplit(value).path not in ("", "/"):
        raise ValueError("expected a URL like https://host, without a path")


def log_level(value: str) -> None:
    if value.upper() not in LOG_LEVELS:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}")


def sandbox(value: str) -> None:
    if value not in ("auto", "bubblewrap", "landlock", "process"):
        raise ValueError("expected auto, bubblewrap, landlock or process")


def isolation(value: tuple[str, ...]) -> None:
    """What a node finds out about itself, and its attempts check again."""
    if unknown := set(value) - set(_ISOLATION):
        raise ValueError(f"{', '.join(sorted(unknown))}: expected some of {', '.join(_ISOLATION)}")


def network(value: str) -> None:
    if value not in ("none", HOST_NETWORK):
        raise ValueError("expected none or host")


def user_ids(value: str) -> None:
    """Empty, or FIRST-LAST."""
    first, _, last = value.partition("-")
    if not value:
        return
    if not (first.isdecimal() and last.isdecimal() and _LEAST_USER <= int(first) <= int(last) <= _MOST_USER):
        raise ValueError(f"expected FIRST-LAST, user IDs of {_LEAST_USER} to {_MOST_USER}, or nothing")
    if any(int(first) <= uid <= int(last) for uid in _NOBODY):
        raise ValueError(f"expected a range without {_NOBODY[0]} and {_NOBODY[1]}, which stand for no user")


def warm(value: str) -> None:
    if value not in ("auto", "supervisors", "off"):
        raise ValueError("expected auto, supervisors or off")


def node_name(value: str) -> None:
    """Empty means the host name."""
    if value and not _NODE_NAME.fullmatch(value):
        raise ValueError("expected 1 to 63 letters, digits, dots, dashes and underscores")


def flower_login(value: str) -> None:
    """Flower takes USER:PASSWORD pairs separated by commas."""
    if "," in value:
        raise ValueError("expected no comma, which separates users in Flower")


def flower_user(value: str) -> None:
    flower_login(value)
    if not value or ":" in value:
        raise ValueError("expected a name without colon")
