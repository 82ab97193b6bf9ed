"""Blocks of log lines: how lines are passed on and stored, so that a line costs next to nothing until it is read.

In a file, a header of one line of JSON comes before the text of each block and says how long that is. Files of earlier
releases have a line of JSON for each log line; both are read here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ENCODING, ERRORS = "utf-8", "surrogatepass"  # earlier releases stored lone surrogates, too


@dataclass(frozen=True, kw_only=True, slots=True)
class LogBlock:
    """``count`` lines of a rank that were read together; each in ``text`` ends with a newline.

    Their numbers are ``first``, ``first + step``, …: the nodes of an attempt number their lines in turn.
    ``replaces``: how many lines are missing where this notice of them is.
    """

    rank: int
    first: int
    count: int
    at: str
    text: bytes
    step: int = 1
    replaces: int = 0

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + (self.count - 1) * self.step

    @property
    def stands_for(self) -> int:
        """How many lines are lost with this block."""
        return self.replaces or self.count

    def lines(self) -> list[str]:
        return self.text.decode(ENCODING, ERRORS).split("\n")[:-1]


class StoredBlock(NamedTuple):
    """A block in a file; ``lost`` numbers before its first are in no block, and ``end`` is where it ends."""

    block: LogBlock
    lost: int
    end: int


def encoded(block: LogBlock, lost: int) -> bytes:
    header = {
        "n": block.first,
        "count": block.count,
        "step": block.step,
        "lost": lost,
        "at": block.at,
        "bytes": len(block.text),
    }
    return json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n" + block.text


def decoded(data: bytes, rank: int) -> Iterator[StoredBlock]:
    """The complete blocks; the rest is still being written."""
    start = 0
    while (newline := data.find(b"\n", start)) >= 0:
        header = json.loads(data[start:newline])
        start = newline + 1 + header["bytes"]
        if start > len(data):
            return
        text = data[newline + 1 : start]
        block = LogBlock(
            rank=rank, first=header["n"], count=header["count"], at=header["at"], text=text, step=header["step"]
        )
        yield StoredBlock(block, header["lost"], start)


def decoded_rows(data: bytes, rank: int) -> Iterator[StoredBlock]:
    """The lines in a file of an earlier release, a block for each."""
    start = 0
    while (newline := data.find(b"\n", start)) >= 0:
        row = json.loads(data[start:newline])
        start = newline + 1
        text = row["line"].encode(ENCODING, ERRORS) + b"\n"
        block = LogBlock(rank=rank, first=row["n"], count=1, at=row["at"], text=text)
        yield StoredBlock(block, row.get("lost", 0), start)
