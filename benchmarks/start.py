"""How long a job takes from its acceptance to the first line of a script, and to the first step of a tiny training.

    python -m benchmarks.start [--rounds 8] [--ray DIRECTORY/bin] [--device cuda]

Two platforms side by side, idle but for the job that is measured: one that forks processes of jobs, one that starts
each as a program (`TRAINYARD_NODE_WARM=off`); alternately, with data that an earlier job had, and with data never seen:
1 500 records of the demo, of some 30 tokens.
The reference of the training is the same one as a script of trl, from its start to the same step; that of the line is
the same script as a job of Ray and of Slurm, where they are installed. Seconds on the clock.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.footprint import PLAIN, Running, up
from benchmarks.fork_servers import PROCESSES, fork_servers
from benchmarks.logs import document as script_document
from benchmarks.machine import description
from benchmarks.other_schedulers import other_schedulers
from benchmarks.overhead import Case, build, plain_training
from benchmarks.overhead import document as training_document
from trainyard.client import Client

CASE = Case(steps=3, save_steps=3, batch_size=2, tokens=32, hidden=64, layers=2)
SCRIPT = "import time\nprint('line', time.time(), flush=True)\n"
RECORDS = 1500
READY_SECONDS, PAUSE_SECONDS = 180.0, 1.0
GOALS = {"line": 0.22, "line at its reader": 0.3, "seen": 0.6, "unseen": 0.9}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--ray", type=Path, help="directory with the programs of Ray")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what is trained on")
    options = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-start-"))
    try:
        found = measured(folder, replace(CASE, device=options.device), options.rounds, options.ray)
    finally:
        shutil.rmtree(folder)
    figures = {name: spread(seconds) for name, seconds in sorted(found.items())}
    report = {"benchmark": "start", "rounds": options.rounds, "device": options.device, "figures": figures}
    report |= {"goals": GOALS, "machine": machine}
    for name, figure in figures.items():
        print(f"{name:26} {figure}", file=sys.stderr)
    print(json.dumps(report))


def measured(folder: Path, case: Case, rounds: int, ray: Path | None) -> dict[str, list[float]]:
    """What and side → seconds of each round."""
    sides = {"forked": "auto", "program": "off"}
    for side in sides:
        (folder / side).mkdir()
        build(case, folder / side)
        records = (folder / side / "demo" / "text.jsonl").read_text().splitlines(keepends=True)
        (folder / side / "data.jsonl").write_text("".join(records[:RECORDS]))
        (folder / side / "line.py").write_text(SCRIPT)
    found: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        running = {
            side: stack.enter_context(up(folder / side, PLAIN, TRAINYARD_NODE_WARM=warm))
            for side, warm in sides.items()
        }
        others = stack.enter_context(other_schedulers(folder, folder / "forked" / "line.py", ray))
        wait_for_servers(running["forked"])
        for side in sides:
            training(running[side], case, folder / side, 0)  # the data is seen from here on
        for number in range(1, rounds + 1):
            for side in sorted(sides, reverse=bool(number % 2)):
                measure: dict[str, Callable[[], float]] = {
                    "seen": partial(training, running[side], case, folder / side, 0),
                    "unseen": partial(training, running[side], case, folder / side, number),
                }
                printed, read = first_line(running[side], case, folder / side)
                found.setdefault(f"line {side}", []).append(printed)
                found.setdefault(f"line at its reader {side}", []).append(read)
                for what, seconds in measure.items():
                    time.sleep(PAUSE_SECONDS)
                    found.setdefault(f"{what} {side}", []).append(seconds())
            for name, line in others.items():
                time.sleep(PAUSE_SECONDS)
                found.setdefault(f"line {name}", []).append(line())
            found.setdefault("script", []).append(alone(case, folder / "forked"))
    return found


def wait_for_servers(running: Running) -> None:
    """Until the node has both fork servers, with a process that waits in each."""
    deadline = time.monotonic() + READY_SECONDS
    while len(fork_servers(running.process.pid)) < PROCESSES:
        if time.monotonic() > deadline:
            sys.exit("the fork servers did not start")
        time.sleep(PAUSE_SECONDS)
    time.sleep(PAUSE_SECONDS)


def first_line(running: Running, case: Case, folder: Path) -> tuple[float, float]:
    """Seconds from the acceptance of a script to the moment when it prints, and to that when a reader has it."""
    client = running.client()
    document = script_document(folder, folder / "line.py")
    document["resource_config"]["device_type"] = case.device  # a node with GPUs offers no CPU slots
    job_id, accepted = submitted(client, document)
    times = [
        (float(event.data["line"].split()[1]), time.time())
        for event in client.follow_logs(job_id)
        if event.data["line"].startswith("line ")
    ]
    client.wait(job_id)
    ((printed, read),) = times
    return printed - accepted, read - accepted


def training(running: Running, case: Case, folder: Path, number: int) -> float:
    """Seconds from the acceptance of a training to the report of its first step; of data number ``number``."""
    client, document = running.client(), training_document(case, folder, 1)
    data = folder / f"data-{number}.jsonl"
    if not data.exists():
        extra = json.dumps({"text": f"record {number} of this data alone"})
        data.write_text((folder / "data.jsonl").read_text() + extra + "\n")
    document["data_config"]["sources"][0]["path"] = str(data)
    job_id, accepted = submitted(client, document)
    job = client.wait(job_id)
    if job.status != "COMPLETED":
        sys.exit(f"the job ended {job.status}: {job.data}")
    _, at, _ = client.metrics(job_id)["series"]["loss"][0]
    return datetime.fromisoformat(at).timestamp() - accepted


def alone(case: Case, folder: Path) -> float:
    """Seconds from the start of the script to the report of its first step."""
    began = time.time()
    with plain_training(case, folder, 1) as process:
        output, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"the script alone failed: {errors}")
    _, at = json.loads(output.splitlines()[-1])["logged"][0]
    return float(at) - began


def submitted(client: Client, document: dict[str, Any]) -> tuple[str, float]:
    """(id, time of the acceptance)"""
    job = client.submit(document)
    return job.job_id, time.time()


def spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return {"p50": round(statistics.median(ordered), 3), "p95": round(p95, 3), "max": round(ordered[-1], 3)}


if __name__ == "__main__":
    main(sys.argv[1:])
