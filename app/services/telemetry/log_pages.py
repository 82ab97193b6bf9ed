"""A job's log for people: its attempts and ranks, the lines at any place of it, and all of it as text."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.storage.logs import LogLine, LogReader, Ranks
from app.storage.storage import Storage


@dataclass(frozen=True, kw_only=True)
class LogOutline:
    """``attempt`` is the one described by the rest; 0 where nothing was written. ``last``: the highest line number."""

    attempts: list[int]
    attempt: int
    ranks: list[int]
    last: int


def outline(storage: Storage, job_id: str, *, attempt: int | None = None, rank: Ranks = None) -> LogOutline:
    """What there is of an attempt, by default of the newest one that has written lines."""
    reader = LogReader(storage, job_id)
    attempts = reader.attempts()
    shown = attempt if attempt is not None else attempts[-1] if attempts else 0
    if shown not in attempts:
        return LogOutline(attempts=attempts, attempt=shown, ranks=[], last=0)
    return LogOutline(attempts=attempts, attempt=shown, ranks=reader.ranks(shown), last=reader.newest(shown, rank=rank))


def lines_between(
    storage: Storage, job_id: str, attempt: int, first: int, last: int, *, rank: Ranks = None, live: bool
) -> list[LogLine]:
    """The lines of an attempt with these numbers: fewer than there are numbers where some are of other ranks."""
    found: list[LogLine] = []
    for block in LogReader(storage, job_id).blocks((attempt, first - 1), rank=rank, attempt=attempt, live=live):
        if block.first > last:
            break
        found.extend(block.head(block.number_up_to(last)))
    return found


def as_text(storage: Storage, job_id: str, *, attempt: int | None = None, rank: Ranks = None) -> Iterator[str]:
    """All lines with time and rank, in pieces of many lines."""
    for block in LogReader(storage, job_id).blocks(rank=rank, attempt=attempt, live=False):
        prefix = f"{block.at} [{block.rank}] "
        yield "".join(f"{prefix}{text}\n" for text in block.texts)
