"""What a whole `trainyard up` costs while nothing happens: processor time and SQL statements of all its processes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processor_time import seconds_by_child
from benchmarks.servers import plain_environment
from benchmarks.statements import counted, counting_environment

# Node and devices are registered by then, and the fork server of ranks, which a node starts after 15 s, is ready.
SETTLE_SECONDS = 45.0
IDLE_SECONDS = 60.0
GOALS = {"cpu_percent": 1.0, "statements": 6.0}


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
            time.sleep(SETTLE_SECONDS)
            began, sent, used = time.monotonic(), counted(counts).total(), _processor_seconds(process.pid)
            time.sleep(IDLE_SECONDS)
            lasted = time.monotonic() - began
            return {
                "cpu_percent": round((_processor_seconds(process.pid) - used) / lasted * 100, 2),
                "statements": round((counted(counts).total() - sent) / lasted, 2),
            }
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def line(measured: dict[str, float]) -> str:
    return (
        f"Idle: {measured['cpu_percent']} % of a core in all (goal ≤ {GOALS['cpu_percent']:g} %), "
        f"{measured['statements']} statements/s (goal ≤ {GOALS['statements']:g})"
    )


def _processor_seconds(pid: int) -> float:
    return seconds_by_child(os.getpid())[pid]
