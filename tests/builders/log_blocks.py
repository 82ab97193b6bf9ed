"""Blocks of log lines, as a supervisor passes them on."""

from app.storage.log_blocks import ENCODING, ERRORS, LogBlock


def block(first: int, *texts: str, rank: int = 0, at: str = "2030-01-01T00:00:00.000Z", step: int = 1) -> LogBlock:
    """Consecutive lines of a rank."""
    text = "".join(f"{line}\n" for line in texts).encode(ENCODING, ERRORS)
    return LogBlock(rank=rank, first=first, count=len(texts), at=at, text=text, step=step)
