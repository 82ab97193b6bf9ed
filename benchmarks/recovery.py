"""From a kill to training again (B9): of a rank, and of a whole machine, under the default settings.

    python -m benchmarks.recovery [--ranks 20] [--machines 10] [--database sqlite|postgresql]

The real processes on this machine, two nodes. A rank of the witnessed script is killed by SIGKILL; then a machine is
lost: its node worker and its supervisors are killed without a shutdown, and another node has to continue the job. Both
are timed by the witness of the tests, outside of the system: until the new trainer's first report (for which the
platform is responsible), and until its first finished step. The script's own start, alone and without Trainyard, is
measured between the kills. Before each kill the job makes progress, as recovery expects of a healthy job. One JSON
line on standard output, a table on standard error.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import description
from benchmarks.soak import running_cluster
from tests.faults.cluster import Cluster
from tests.systems.system import wait_for

GOALS = {"rank": 3.0, "machine": 20.0}
STEPS = 1_000_000
STEP_SECONDS = 0.05
SAVE_EVERY = 20
SECONDS = 60.0

Times = dict[str, list[float]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=20, help="kills of a rank")
    parser.add_argument("--machines", type=int, default=10, help="losses of a machine")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    given = parser.parse_args(arguments)
    machine, folder = description(), Path(tempfile.mkdtemp(prefix="trainyard-recovery-"))
    try:
        with running_cluster(folder, given.database) as cluster:
            times, starts = measured(cluster, given.ranks, given.machines)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {name: getattr(given, name) for name in ("ranks", "machines", "database")}
    figures = {kind: {what: spread(values) for what, values in found.items()} for kind, found in times.items()}
    report = {
        "benchmark": "recovery",
        **settings,
        "seconds": figures,
        "script_start": spread(starts),
        "machine": machine,
    }
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(cluster: Cluster, ranks: int, machines: int) -> tuple[dict[str, Times], list[float]]:
    """(kind → until the first word and until the first step, seconds of the script's own start)."""
    job_id = cluster.train(steps=STEPS, step_seconds=STEP_SECONDS, save_every=SAVE_EVERY)
    times: dict[str, Times] = {kind: {"word": [], "step": []} for kind in GOALS}
    starts = []
    for kind in ["rank"] * ranks + ["machine"] * machines:
        starts.append(script_start(cluster.folder))
        _wait_for_progress(cluster, job_id)
        word, step = kill_a_rank(cluster, job_id) if kind == "rank" else lose_a_machine(cluster, job_id)
        times[kind]["word"].append(word)
        times[kind]["step"].append(step)
    cluster.call("POST", f"/v1/jobs/{job_id}/cancel")
    cluster.wait_for_status(job_id, "CANCELLED")
    return times, starts


def kill_a_rank(cluster: Cluster, job_id: str) -> tuple[float, float]:
    """Seconds until the next attempt's first word, and until its first step."""
    attempt, rank = cluster.job(job_id)["attempt"], cluster.ranks_of(job_id)[0]
    killed_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    rank.kill()
    return _until_it_trains(cluster, job_id, attempt, killed_ns)


def lose_a_machine(cluster: Cluster, job_id: str) -> tuple[float, float]:
    attempt, home = cluster.job(job_id)["attempt"], cluster.home(job_id)
    supervisor = cluster.supervisor_of(job_id)
    killed_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    cluster.kill(f"node-{home}")
    supervisor.kill()
    took = _until_it_trains(cluster, job_id, attempt, killed_ns)
    cluster.start_node(home)
    wait_for(lambda: cluster.ready_nodes() >= set(cluster.node_names), seconds=SECONDS, what="the node is back")
    return took


def script_start(folder: Path) -> float:
    """Seconds from nothing to the script's hooks, by itself: what no platform can take away."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import trainyard.hooks"], check=True, cwd=folder)
    return time.monotonic() - began


def _until_it_trains(cluster: Cluster, job_id: str, attempt: int, killed_ns: int) -> tuple[float, float]:
    def first(what: str) -> int:
        seen = [s.at_ns for s in cluster.witness.of(job_id) if s.attempt > attempt and s.what == what]
        return min(seen, default=0)

    wait_for(lambda: first("step"), seconds=SECONDS, what="training again")
    return (first("start") - killed_ns) / 1e9, (first("step") - killed_ns) / 1e9


def _wait_for_progress(cluster: Cluster, job_id: str) -> None:
    """Until the newest attempt has saved: failures without progress between them are another matter."""

    def has_saved() -> bool:
        seen = cluster.witness.of(job_id)
        newest = max((s.attempt for s in seen), default=0)
        return len([s for s in seen if s.attempt == newest and s.what == "saved"]) >= 2

    wait_for(has_saved, seconds=SECONDS, what="a checkpoint")


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    found = {"p50": statistics.median(ordered), "p99": p99, "max": ordered[-1], "min": ordered[0]}
    return {name: round(value, 3) for name, value in found.items()}


def table(report: dict[str, Any]) -> str:
    lines = ["| seconds | times | fastest | p50 | p99 | goal, p99 |", "|---|---|---|---|---|---|"]
    rank, machine = report["seconds"]["rank"], report["seconds"]["machine"]
    rows = [
        ("rank killed → first word of the next", report["ranks"], rank["word"], f"≤ {GOALS['rank']:g}"),
        ("rank killed → first step", report["ranks"], rank["step"], ""),
        ("machine lost → first word on another", report["machines"], machine["word"], f"≤ {GOALS['machine']:g}"),
        ("machine lost → first step on another", report["machines"], machine["step"], ""),
        ("the script's own start, alone", report["ranks"] + report["machines"], report["script_start"], ""),
    ]
    for what, times, v, goal in rows:
        lines.append(f"| {what} | {times} | {v['min']:.2f} | {v['p50']:.2f} | {v['p99']:.2f} | {goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
