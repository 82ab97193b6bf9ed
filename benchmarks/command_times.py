"""How long commands of `trainyard` take, each in an interpreter of its own."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

# What people wait for: help, and commands that ask the server or read the database of a running platform.
HELP = ("--help", "submit --help", "jobs --help", "nodes --help", "schedule --help", "db --help")
CLIENT = ("logs {job}", "watch {job}")
ADMINISTRATOR = ("jobs list", "nodes list", "schedule explain {job}")

Times = dict[str, dict[str, float]]


def times(job_id: str, environment: Mapping[str, str], *, rounds: int) -> Times:
    """Medians of the clock and of processor time; every command once per round."""
    commands = [line.format(job=job_id) for line in (*HELP, *CLIENT, *ADMINISTRATOR)]
    taken: dict[str, list[tuple[float, float]]] = {command: [] for command in commands}
    for _ in range(rounds):
        for command in commands:
            taken[command].append(_run(command.split(), environment))
    return {
        command.replace(job_id, "JOB"): {
            "seconds": round(statistics.median(clock for clock, _ in measured), 3),
            "processor_seconds": round(statistics.median(used for _, used in measured), 3),
        }
        for command, measured in taken.items()
    }


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    command = [sys.executable, "-m", "app.cli.main", *arguments]
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime
