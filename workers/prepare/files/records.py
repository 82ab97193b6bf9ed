"""Inspects the content of an uploaded file: `python -m workers.prepare.files.records`, in a sandbox.

Started by `workers.prepare.files.inspection`; reads the content from standard input, and prints one JSON document
{records, shape, problems, read_bytes}. Needs neither the file's name nor the storage.
"""

import argparse
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from app.domain.files.inspection import inspect
from app.host.landlock import stay_below
from app.host.processes import die_with_parent
from workers.prepare.files.unpacking import unpacked

_PIECE_BYTES = 256 << 10
_MOST_WRITTEN_BYTES = 1 << 20


class Received:
    """The content as it arrives, and how much has arrived."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        while piece := os.read(self._descriptor, _PIECE_BYTES):
            self.size_bytes += len(piece)
            yield piece


def main() -> int:
    parser = argparse.ArgumentParser(prog="workers.prepare.files.records", description=__doc__)
    parser.add_argument("--purpose", required=True)
    parser.add_argument("--line-bytes", type=int, required=True)
    parser.add_argument("--most-bytes", type=int, required=True, help="of packed content once it is unpacked")
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--die-with", type=int)
    arguments = parser.parse_args()
    if arguments.die_with is not None:
        die_with_parent(arguments.die_with)
    else:
        stay_below(Path("/"))
    _limit(arguments.memory_bytes)
    received = Received(sys.stdin.fileno())
    found = inspect(unpacked(received, arguments.most_bytes), arguments.purpose, arguments.line_bytes)
    print(json.dumps({**found.to_json(), "read_bytes": received.size_bytes}))  # noqa: T201 – the answer to our parent
    return 0


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN_BYTES, _MOST_WRITTEN_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main())
