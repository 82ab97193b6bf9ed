"""The keys of a foreign configuration: each is carried over, or listed with the reason why it is not."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNKNOWN = "is unknown to this import; look for its field in docs/reference/job-document.md"


class NotImported(Exception):
    """The configuration trains in a way that no training type does."""


@dataclass(frozen=True)
class LeftOut:
    """A key that is not carried over as it is: why not, or what the document has in its place."""

    key: str
    value: Any
    reason: str


class ConfigKeys:
    """One mapping of the configuration. ``null`` is an unset key, in both tools."""

    def __init__(self, config: Mapping[str, Any], prefix: str = "") -> None:
        self._config = {str(name): value for name, value in config.items() if value is not None}
        self._prefix = prefix
        self._unread = set(self._config)
        self._latest = ""
        self.left: list[LeftOut] = []

    def take(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 – JSON
        """The value of the key, which is carried over."""
        self._latest = name if name in self._config else self._latest
        self._unread.discard(name)
        return self._config.get(name, default)

    def peek(self, name: str) -> Any:  # noqa: ANN401 – JSON
        """The value of the key, which is still to be carried over or listed."""
        return self._config.get(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A key that is true or false; both tools also read the words."""
        value = self.take(name, default)
        return value.strip().lower() in ("true", "yes", "1") if isinstance(value, str) else bool(value)

    def has(self, name: str) -> bool:
        return name in self._config

    def leave(self, name: str, reason: str) -> None:
        """List the key with the reason, if it is set."""
        self._unread.discard(name)
        if name in self._config:
            self.left.append(LeftOut(self._prefix + name, self._config[name], reason))

    @contextmanager
    def naming_what_is_no_value(self) -> Iterator[None]:
        """A value of another kind than the tool takes becomes NotImported, which names the key that was read last."""
        try:
            yield
        except (AttributeError, TypeError, ValueError) as error:
            value = json.dumps(self._config.get(self._latest), default=str)
            raise NotImported(f"{self._latest}: {value:.80} is no value of this key: {error}") from error

    def leave_rest(self, reasons: Mapping[str, str], *, silent: frozenset[str] = frozenset()) -> None:
        """List every key that was not read. ``silent`` are the keys whose effect the platform has by itself.

        A known key that is off (false, zero or empty) asks for nothing.
        """
        for name in [name for name in self._config if name in self._unread]:
            reason = reasons.get(name) or next(
                (text for start, text in reasons.items() if start.endswith("*") and name.startswith(start[:-1])), ""
            )
            if name in silent or (reason and not self._config[name]):
                self._unread.discard(name)
            else:
                self.leave(name, reason or UNKNOWN)


def json_object(path: Path) -> Mapping[str, Any] | None:
    """The object in a file that a configuration names; None if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
