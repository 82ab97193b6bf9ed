"""The fork servers of a node under test, which come up some time after the node."""

import sys
import time
from pathlib import Path

from app.host.processes import descendants
from benchmarks.processor_time import own_seconds

PROCESSES = 4  # two fork servers, and a child of each that waits
REST_SECONDS = 5.0
LIMIT_SECONDS = 180.0  # a node starts them after 15 s, and on a busy machine they import for some


def is_fork_server(pid: int) -> bool:
    return any(word.endswith(".fork_server") for word in command_line(pid))


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def fork_servers(above: int) -> list[int]:
    """Those below a process, with their children that wait."""
    return [pid for pid in descendants(above) if is_fork_server(pid)]


def wait_until_at_rest(above: int) -> None:
    """Until all of them are there and use no processor time; ends the benchmark when that is not in time."""
    deadline = time.monotonic() + LIMIT_SECONDS
    before: dict[int, float] = {}
    while time.monotonic() < deadline:
        used = own_seconds(fork_servers(above))
        if len(used) >= PROCESSES and used == before:
            return
        before = used
        time.sleep(REST_SECONDS)
    sys.exit(f"the fork servers were not at rest after {LIMIT_SECONDS:g} s")
