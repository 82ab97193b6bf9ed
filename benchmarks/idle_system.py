"""What a whole `trainyard up` costs while nothing happens: processor time and SQL statements of all its processes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fork_servers import wait_until_at_rest
from benchmarks.processor_time import seconds_by_child
from benchmarks.servers import plain_environment
from benchmarks.statements import counted, counting_environment

IDLE_SECONDS = 60.0
GOALS = {"cpu_percent": 1.0, "statements": 6.0}


@dataclass(frozen=True)
class _Reading:
    at: float
    seconds: float  # of processor time
    statements: int


def idle_system() -> dict[str, float]:
    """Started for this alone: counting statements makes its processes a little larger and slower to start."""
    with tempfile.TemporaryDirectory(prefix="trainyard-idle-") as name:
        folder = Path(name)
        counts = folder / "statements"
        command = [sys.executable, "-m", "app.cli.main", "up", "--data-dir", str(folder / "data"), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--no-flower", "--no-tensorboard"],
            cwd=folder,
            env={**plain_environment(), **counting_environment(counts), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            if not any(line.startswith("Ready after") for line in process.stdout):
                sys.exit("`trainyard up` ended before it was ready")
            wait_until_at_rest(process.pid)  # what starts last: node and devices are registered by then
            before = _read(process, counts)
            time.sleep(IDLE_SECONDS)
            after = _read(process, counts)
            return {
                "cpu_percent": round((after.seconds - before.seconds) / (after.at - before.at) * 100, 2),
                "statements": round((after.statements - before.statements) / (after.at - before.at), 2),
            }
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def line(measured: dict[str, float]) -> str:
    return (
        f"Idle: {measured['cpu_percent']} % of a core in all (goal ≤ {GOALS['cpu_percent']:g} %), "
        f"{measured['statements']} statements/s (goal ≤ {GOALS['statements']:g})"
    )


def _read(process: "subprocess.Popen[str]", counts: Path) -> _Reading:
    """What it has used so far; ends the benchmark when it has ended, because what is dead costs nothing."""
    if process.poll() is not None:
        sys.exit(f"`trainyard up` ended with exit code {process.returncode} while it was measured")
    return _Reading(time.monotonic(), seconds_by_child(os.getpid())[process.pid], counted(counts).total())
