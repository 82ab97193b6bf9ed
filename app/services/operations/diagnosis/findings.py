"""The result of a check: severity, message and fix."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Finding:
    level: Level
    message: str
    fix: str = ""


Findings = list[Finding]


def fine(message: str) -> Findings:
    return [Finding(level=Level.OK, message=message)]


def skipped(message: str) -> Findings:
    return [Finding(level=Level.SKIPPED, message=message)]


def warning(message: str, fix: str) -> Findings:
    return [Finding(level=Level.WARNING, message=message, fix=fix)]


def failed(message: str, fix: str) -> Findings:
    return [Finding(level=Level.FAILED, message=message, fix=fix)]


def size(number: float) -> str:
    """``3.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"
