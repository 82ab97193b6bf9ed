"""From `POST …/pause` to devices that are free and a checkpoint that is safe (B4).

    python -m benchmarks.pause [--rounds 15] [--megabytes 64] [--step-seconds 0.2]

The real processes on this machine. A script trains steps of a fixed length with a state of so many megabytes; it is
paused at a random moment, and timed until no process of the job is left and its checkpoint is recorded. Alternating, in
the same run, the lower bound: the rest of a step, half of one on average, counted as a whole one, and one synchronous
save of the same state by hand, each file and the directory flushed. Then it is resumed, and must continue from exactly
the step at which it was paused. One JSON line on standard output, a table on standard error.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import description
from benchmarks.soak import running_cluster
from tests.faults.cluster import Cluster
from tests.systems.system import wait_for

GOAL_SECONDS = 0.5
STEPS = 1_000_000
SECONDS = 60.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    given = parser.parse_args(arguments)
    machine, folder = description(), Path(tempfile.mkdtemp(prefix="trainyard-pause-"))
    try:
        with running_cluster(folder, "sqlite") as cluster:
            rounds = measured(cluster, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {"rounds": given.rounds, "megabytes": given.megabytes, "step_seconds": given.step_seconds}
    report = {"benchmark": "pause", **settings, **figures(rounds), "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(cluster: Cluster, given: argparse.Namespace) -> list[dict[str, float]]:
    """One entry for each round: seconds of the pause and of what it is compared with, steps that were lost."""
    weight_bytes, step_seconds = given.megabytes << 20, given.step_seconds
    job_id = cluster.train(steps=STEPS, step_seconds=step_seconds, weight_bytes=weight_bytes, save_every=STEPS)
    rng, rounds = random.Random(0), []
    for number in range(1, given.rounds + 1):
        cluster.wait_until_witnessed(job_id, 3, attempt=number, seconds=SECONDS)
        by_hand = step_seconds + save_by_hand(cluster.storage, weight_bytes)
        time.sleep(rng.uniform(1.0, 1.0 + step_seconds))
        seconds = pause(cluster, job_id)
        rounds.append({"pause": seconds, "reference": by_hand, "lost": resume(cluster, job_id)})
    cluster.call("POST", f"/v1/jobs/{job_id}/cancel")
    cluster.wait_for_status(job_id, "CANCELLED")
    return rounds


def pause(cluster: Cluster, job_id: str) -> float:
    """Seconds until it is PAUSED and nothing of it runs."""
    began = time.monotonic()
    status, body = cluster.call("POST", f"/v1/jobs/{job_id}/pause")
    if status not in (200, 202):
        sys.exit(f"the pause was refused: {body}")
    wait_for(
        lambda: cluster.job(job_id)["status"] == "PAUSED" and not cluster.left_of_attempts(),
        seconds=SECONDS,
        what="the pause",
    )
    return time.monotonic() - began


def resume(cluster: Cluster, job_id: str) -> int:
    """Resume the job; returns how many steps are trained again."""
    last, attempt = cluster.witness.last_step(job_id), cluster.job(job_id)["attempt"]
    status, body = cluster.call("POST", f"/v1/jobs/{job_id}/resume")
    if status not in (200, 202):
        sys.exit(f"the resume was refused: {body}")

    def start() -> list[int]:
        return [s.step for s in cluster.witness.of(job_id) if s.attempt > attempt and s.what == "start"]

    return last - wait_for(start, seconds=SECONDS, what="the job continues")[0]


def save_by_hand(storage: Path, weight_bytes: int) -> float:
    """Seconds of one synchronous save beside the real ones: files flushed, hashed, put in place."""
    folder = storage.parent / "by-hand"
    began = time.monotonic()
    folder.mkdir()
    weights = b"w" * weight_bytes
    with (folder / "weights.bin").open("wb") as stream:
        stream.write(weights)
        stream.flush()
        os.fsync(stream.fileno())
    (folder / "sha256").write_text(hashlib.sha256(weights).hexdigest())
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    seconds = time.monotonic() - began
    shutil.rmtree(folder)
    return seconds


def figures(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Medians with their ranges, and the median of the rounds' differences."""
    beyond = [one["pause"] - one["reference"] for one in rounds]
    return {
        "pause_seconds": spread([one["pause"] for one in rounds]),
        "reference_seconds": spread([one["reference"] for one in rounds]),
        "beyond_seconds": spread(beyond),
        "lost_steps": int(sum(one["lost"] for one in rounds)),
    }


def spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 3) for name, value in found.items()}


def table(report: dict[str, Any]) -> str:
    rows = [
        ("pause, from the request to free devices (s)", report["pause_seconds"], ""),
        ("one step and one save by hand (s)", report["reference_seconds"], ""),
        ("beyond that (s)", report["beyond_seconds"], f"≤ {GOAL_SECONDS:g}"),
    ]
    lines = ["| | median | least | most | goal |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {v['median']:.2f} | {v['min']:.2f} | {v['max']:.2f} | {goal} |" for what, v, goal in rows]
    return "\n".join([*lines, f"| steps lost | {report['lost_steps']} | | | 0 |"])


if __name__ == "__main__":
    main(sys.argv[1:])
