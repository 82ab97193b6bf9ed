"""A sweep of trials that are real processes, beside the same one of Ray Tune where `--ray` names it.

    python -m benchmarks.sweep_beside_ray [--ray DIRECTORY/bin] [--trials 200] [--parallel 8] [--seconds 0.2]

(`pip install "ray[tune]"` in an environment of its own.) Each trial is a process that sleeps, computes a loss from its
value and reports it. Ours is a script with hooks, a job with its own checks, lease, log and result; Ray's is a function
in an actor. Both take random values, have as many devices as trials at a time, and start from a platform that runs and
is idle; the time runs from the request to the end of the sweep, alternately. One JSON line on standard output.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.footprint import PLAIN, Running, up
from benchmarks.logs import document
from benchmarks.machine import description

GOAL = 0.8
END_SECONDS = 1800.0
TRIAL = """\
import os, time
from trainyard import hooks
run = hooks.init()
time.sleep({seconds})
run.progress(1, 1)
run.log_metrics({{"loss": (float(os.environ["X"]) - 1) ** 2}}, step=1)
"""
# Prints the seconds of each sweep that a line on its standard input asks for.
RAY = """\
import sys, time
import ray
from ray import tune
trials, parallel, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
ray.init(num_cpus=parallel, include_dashboard=False, logging_level="ERROR")
def trial(config):
    time.sleep(seconds)
    tune.report({"loss": (config["x"] - 1) ** 2})
def sweep():
    return tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"x": tune.uniform(0, 2)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, max_concurrent_trials=parallel),
        run_config=tune.RunConfig(storage_path=sys.argv[4], verbose=0),
    ).fit()
print("ready", flush=True)
for _ in sys.stdin:
    began = time.monotonic()
    found = sweep()
    assert len(found) == trials and not found.errors
    print("seconds", time.monotonic() - began, flush=True)
"""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--ray", type=Path, help="directory with the programs of Ray's environment; default: ours alone"
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each trial")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="trainyard-beside-ray-"))
    try:
        found = measured(folder, given)
    finally:
        shutil.rmtree(folder)
    settings = {name: getattr(given, name) for name in ("trials", "parallel", "seconds", "rounds")}
    report = {"benchmark": "sweep_beside_ray", **settings, **found, "machine": description()}
    print(f"seconds: {found}", file=sys.stderr)
    if given.ray is not None:
        ratio = statistics.median(ours / ray for ours, ray in zip(found["ours"], found["ray"], strict=True))
        report["ratio"] = round(ratio, 2)
        kept = "kept" if ratio <= GOAL else "NOT KEPT"
        print(f"{ratio:.2f} of Ray Tune's time, goal ≤ {GOAL}: {kept}", file=sys.stderr)
    print(json.dumps(report))


def measured(folder: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    """Side → seconds of each round."""
    (folder / "trial.py").write_text(TRIAL.format(seconds=given.seconds))
    (folder / "data.jsonl").write_text('{"text": "a line"}\n')
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "node.toml").write_text(f'[[devices]]\ntype = "h100"\nmemory_mb = 1000\ncount = {given.parallel}\n')
    (folder / "with_ray.py").write_text(RAY)
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        running = stack.enter_context(up(folder, PLAIN, TRAINYARD_NODE_CONFIG=str(folder / "node.toml")))
        sides = {"ours": partial(ours, running, folder, given)}
        if given.ray is not None:
            sides["ray"] = partial(theirs, stack.enter_context(_ray(folder, given)))
        for number in range(given.rounds):
            for side in sorted(sides, reverse=bool(number % 2)):
                found.setdefault(side, []).append(sides[side]())
    return found


def ours(running: Running, folder: Path, given: argparse.Namespace) -> float:
    client = running.client()
    job = document(folder, folder / "trial.py")
    job["resource_config"] = {"gpu_count": 1}
    sweep: dict[str, Any] = {
        "name": "beside-ray",
        "job": {name: section for name, section in job.items() if name != "name"},
        "parameters": {"environment.X": {"type": "double", "min": 0.0, "max": 2.0}},
        "objective": {"metric": "loss", "goal": "minimize"},
        "method": {"name": "random"},
        "budget": {"max_trials": given.trials, "parallel_trials": given.parallel},
    }
    began = time.monotonic()
    sweep_id = client.sweeps.create(sweep)["sweep_id"]
    while time.monotonic() - began < END_SECONDS:
        now = client.sweeps.get(sweep_id)
        if now["finished_at"] is not None:
            if now["trials_by_state"]["COMPLETED"] != given.trials:
                sys.exit(f"not all trials completed: {now['trials_by_state']}")
            return time.monotonic() - began
        time.sleep(0.2)
    sys.exit(f"the sweep did not end in {END_SECONDS:g} s")


def _ray(folder: Path, given: argparse.Namespace) -> "subprocess.Popen[str]":
    command = [str(given.ray / "python"), str(folder / "with_ray.py"), *map(str, (given.trials, given.parallel))]
    process = subprocess.Popen(
        [*command, str(given.seconds), str(folder / "results")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    _answer(process, "ready")
    return process


def theirs(ray: "subprocess.Popen[str]") -> float:
    assert ray.stdin is not None
    ray.stdin.write("sweep\n")
    ray.stdin.flush()
    return float(_answer(ray, "seconds").split()[1])


def _answer(ray: "subprocess.Popen[str]", word: str) -> str:
    assert ray.stdout is not None
    for line in ray.stdout:
        if line.startswith(word):
            return line
    sys.exit("Ray Tune ended before it answered")


if __name__ == "__main__":
    main(sys.argv[1:])
