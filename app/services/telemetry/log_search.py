"""Searches a job's log. Each request does a bounded amount of work and says where the next one continues."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from app.domain.errors import InvalidRequest
from app.patterns.log_patterns import InvalidLogPattern, log_pattern
from app.storage.logs import START, Cursor, LogLine, LogLines, LogReader, Ranks
from app.storage.storage import Storage

MAX_FOUND = 1000
MOST_CHARACTERS = 8 << 20
_Matches = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True)
class SearchBudget:
    """What one request does at most: its lines take about a tenth of a second, but a pattern or storage may be slow."""

    lines: int = 50_000
    seconds: float = 1.0


MOST_WORK = SearchBudget()


@dataclass(frozen=True, kw_only=True)
class WantedLines:
    """``text``: in the line, in any case. ``pattern``: RE2. ``since`` and ``until`` include their moment."""

    text: str = ""
    pattern: str = ""
    since: datetime | None = None
    until: datetime | None = None
    rank: Ranks = None
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True)
class FoundLines:
    """``after``: the cursor to continue at, None where all lines that there are were searched."""

    lines: list[LogLine]
    searched: int
    after: Cursor | None


def search(
    storage: Storage,
    job_id: str,
    wanted: WantedLines,
    after: Cursor = START,
    *,
    limit: int = MAX_FOUND,
    live: bool,
    most: SearchBudget = MOST_WORK,
) -> FoundLines:
    """The next matching lines after the cursor, oldest first; of one line at least it is known whether it matches.

    Raises InvalidRequest for an invalid pattern.
    """
    matches = _matcher(wanted)
    found: list[LogLine] = []
    searched, characters = 0, 0
    deadline = time.monotonic() + most.seconds
    blocks = LogReader(storage, job_id).blocks(after, rank=wanted.rank, attempt=wanted.attempt, live=live)
    for block in blocks:
        lines = block.head(most.lines - searched)
        if _is_within(lines, wanted):
            for line in lines:
                if matches is None or matches(line.line):
                    found.append(line)
                if len(found) >= limit or time.monotonic() >= deadline:
                    count = lines.number_up_to(line.n)
                    return FoundLines(lines=found, searched=searched + count, after=lines.head(count).cursor)
        searched += len(lines.texts)
        characters += sum(map(len, lines.texts))
        if searched >= most.lines or characters >= MOST_CHARACTERS or time.monotonic() >= deadline:
            return FoundLines(lines=found, searched=searched, after=lines.cursor)
    return FoundLines(lines=found, searched=searched, after=None)


def _matcher(wanted: WantedLines) -> _Matches | None:
    """None: every line matches."""
    text = wanted.text.lower()
    if not wanted.pattern:
        return (lambda line: text in line.lower()) if text else None
    try:
        pattern = log_pattern(wanted.pattern)
    except InvalidLogPattern as error:
        raise InvalidRequest(str(error), field="pattern") from error
    return lambda line: text in line.lower() and pattern.search(line.encode("utf-8", "replace")) is not None


def _is_within(lines: LogLines, wanted: WantedLines) -> bool:
    if wanted.since is None and wanted.until is None:
        return True
    at = datetime.fromisoformat(lines.at)
    return (wanted.since is None or at >= wanted.since) and (wanted.until is None or at <= wanted.until)
