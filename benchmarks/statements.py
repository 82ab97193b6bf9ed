"""The SQL statements of processes under test, as `benchmarks/counting` counts them, and what an idle second costs."""

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")


def counting_environment(folder: Path) -> dict[str, str]:
    """Added to the environment of a process, has it and all that it starts count into the folder, which is made."""
    folder.mkdir(exist_ok=True)
    return {"BENCHMARKS_STATEMENTS": str(folder), "PYTHONPATH": f"{ROOT / 'benchmarks' / 'counting'}:{ROOT}"}


def counted(folder: Path) -> Counter[str]:
    """Statement → how often it was sent so far, BEGIN included; COMMIT is none of SQLAlchemy's statements."""
    found: Counter[str] = Counter()
    for path in folder.glob("*.json"):
        found.update(json.loads(path.read_text()))
    return found


@dataclass(frozen=True)
class IdleCost:
    """Statements per second of all processes that count, and each process's part of a core."""

    statements: float
    percent: dict[int, float]

    @property
    def total_percent(self) -> float:
        return round(sum(self.percent.values()), 2)


def idle_cost(folder: Path, pids: Sequence[int], seconds: float) -> IdleCost:
    """What these processes use in the next seconds."""
    began, sent, used = time.monotonic(), counted(folder), [cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    lasted = time.monotonic() - began
    percent = {
        pid: round((cpu_seconds(pid) - before) / lasted * 100, 2) for pid, before in zip(pids, used, strict=True)
    }
    return IdleCost(statements=round((counted(folder) - sent).total() / lasted, 2), percent=percent)


def cpu_seconds(pid: int) -> float:
    """Processor time of the process itself, without what it has started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
