"""How values are shown to people: times, durations, amounts, metrics and states."""

import math
from datetime import UTC, datetime

from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.domain.spec.model import ResourceConfig

# A mark in what a browser says of itself, and the name; those that others also claim to be come last.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrom", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# A symbol beside the name of each state: no state differs by its color alone.
_SYMBOLS = {
    "COMPLETED": "✓",
    "FAILED": "✕",
    "CANCELLED": "⊘",
    "PAUSED": "‖",
    "PREEMPTED": "⇄",
    "PENDING": "○",
    "QUEUED": "◔",
    "STOPPED": "⊘",  # trials of sweeps, as the next
    "EXPLOITED": "⇄",
    "RUNNING": "●",  # of trials and sweeps
    "FINISHING": "●",
}


def duration(seconds: float | None) -> str:
    """Two units at most: `2 h 5 min`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    left = max(0, round(seconds))
    parts = []
    for size, unit in _STEPS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def amount(size: float | None) -> str:
    """Bytes in decimal units."""
    if size is None:
        return "–"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def hours(value: float) -> str:
    """Small use is not nothing: two decimals below one hour."""
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:,.2f}" if 0 < value < 1 else f"{value:,.1f}"


def browser(user_agent: str) -> str:
    """The name of a browser and its system, of what it says of itself; that text if it names neither."""
    name = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return " on ".join(filter(None, (name, system))) or user_agent[:60] or "–"


def number(value: object) -> str:
    """A metric: four significant digits; not a number and infinities by their names."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def devices(asked: ResourceConfig) -> str:
    """What a job asks for on each node: `2 h100 or a100, each with at least 40,000 MB`."""
    names = [asked.gpu_type] if isinstance(asked.gpu_type, str) else list(asked.gpu_type or ())
    noun = {"cpu": "CPU slot", "cuda": "GPU"}.get(asked.device_type, "device") + ("" if asked.gpu_count == 1 else "s")
    kind = " or ".join(names) or noun
    if asked.mig_profile:
        kind = f"slice {asked.mig_profile}" + (f" of {kind}" if names else "")
    part = f"{asked.gpu_fraction:g} of " if asked.gpu_fraction else ""
    if asked.gpu_memory_request_mb:
        part = f"{asked.gpu_memory_request_mb:,} MB of "
    least = f", each with at least {asked.gpu_memory_min_mb:,} MB" if asked.gpu_memory_min_mb else ""
    return f"{part}{asked.gpu_count} {kind}{least}"


def percent(part: float | None) -> str:
    return "–" if part is None else f"{100 * part:.0f} %"


def instant(moment: datetime | None) -> str:
    """ISO 8601 in UTC, for the attribute `datetime` of a time; a script shows it in the reader's zone."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if moment is not None else ""


def moment_text(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if moment is not None else "–"


def short_id(object_id: str) -> str:
    """The end of an id, which names it in every table."""
    return object_id[-8:]


def symbol(status: str) -> str:
    return _SYMBOLS.get(status, "●" if status in {str(state) for state in RUNNING} else "·")


def kind_of_state(status: str) -> str:
    """The class of a state's badge: done, failed, stopped, waiting, or running."""
    if status == JobState.COMPLETED:
        return "done"
    if status == JobState.FAILED:
        return "failed"
    if status in {str(state) for state in TERMINAL} or status in ("PAUSED", "PREEMPTED", "STOPPED", "EXPLOITED"):
        return "stopped"
    return "waiting" if status in ("PENDING", "QUEUED") else "running"
