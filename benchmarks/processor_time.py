"""Processor time of other processes: on a machine where others work too it says more than the clock."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat what follows the name: the parent; user and system time, its own and that of the children it has
# waited for.
_PARENT, _TIMES = 1, slice(11, 15)


def seconds_by_child(parent: int) -> dict[int, float]:
    """For each process that it has started: its own time, and that of all below it."""
    fields = _stats()
    return {pid: _seconds(fields, pid) for pid, of in fields.items() if int(of[_PARENT]) == parent}


def own_seconds(pids: Iterable[int]) -> dict[int, float]:
    """For each of them that is there: its own time, and that of children it has waited for."""
    fields = _stats()
    return {pid: sum(map(int, fields[pid][_TIMES])) / _TICKS for pid in pids if pid in fields}


def _seconds(fields: dict[int, list[str]], pid: int) -> float:
    below = (child for child, of in fields.items() if int(of[_PARENT]) == pid)
    return sum(map(int, fields[pid][_TIMES])) / _TICKS + sum(_seconds(fields, child) for child in below)


def _stats() -> dict[int, list[str]]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[int(path.parent.name)] = text.rpartition(")")[2].split()
    return found
